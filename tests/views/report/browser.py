"""A real browser for the page: Debian's Chromium, headless, that tells what it asked for and what went wrong."""

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
    reason="no chromium or chromedriver here: `apt-get install chromium chromium-driver` brings them",
)


class Browser:
    """A window, with words for what a reader does."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """A new page: what earlier ones logged is forgotten."""
        self.driver.get("about:blank")
        self.errors(), self.requests()
        self.driver.get(url)

    def __call__(self, script: str):
        """What a piece of JavaScript returns."""
        return self.driver.execute_script(f"return {script}")

    def click(self, selector: str) -> None:
        self(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, selector: str, key: str) -> None:
        """A key, with the focus on an element: as the keyboard does it."""
        self(f"document.querySelector({json.dumps(selector)}).focus()")
        self.driver.switch_to.active_element.send_keys(key)

    def pixels(self, selector: str) -> str:
        """What a canvas shows."""
        return self(f"document.querySelector({json.dumps(selector)}).toDataURL()")

    def size(self, width: int, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def errors(self) -> list[str]:
        """What the console has said since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> set[str]:
        """Addresses that were asked for since this was last asked."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        sent = (each for each in messages if each["method"] == "Network.requestWillBeSent")
        return {each["params"]["request"]["url"] for each in sent} - {"about:blank"}


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, closed at the end."""
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
