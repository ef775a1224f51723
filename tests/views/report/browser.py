"""A headless Chromium that records the requests and errors of a page."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
)


class Browser:
    """A browser window, with methods for the actions of a reader."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Open a page; what earlier pages logged is discarded."""
        self.driver.get("about:blank")
        self.errors(), self.requests()
        self.driver.get(url)

    def __call__(self, script: str):
        """Return the value of a JavaScript expression."""
        return self.driver.execute_script(f"return {script}")

    def click(self, selector: str) -> None:
        self(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, selector: str, key: str) -> None:
        """Focus an element and press a key."""
        self(f"document.querySelector({json.dumps(selector)}).focus()")
        self.driver.switch_to.active_element.send_keys(key)

    def pixels(self, selector: str) -> str:
        """Return the content of a canvas."""
        return self(f"document.querySelector({json.dumps(selector)}).toDataURL()")

    def size(self, width: int, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def errors(self) -> list[str]:
        """Return the messages of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> set[str]:
        """Return the addresses requested since the last call."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        sent = (message for message in messages if message["method"] == "Network.requestWillBeSent")
        return {message["params"]["request"]["url"] for message in sent} - {"about:blank"}


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile, and close it at the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
