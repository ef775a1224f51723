"""Run folders for report pages, one of them with attacks in every string, and a browser that opens pages."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from small_runs import composed, run, small

from proxlearn.config.run_name import digest
from proxlearn.config.schema import TrainConfig, build
from proxlearn.run.sweep_folder import SweepFolder, SweepJob
from proxlearn.views.report.page import PageBuilder
from proxlearn.views.report.server import ReportServer

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;</table>\u2028{{data}}${1} Ünïcødé 漢字 🙂"


def plane_run(folder: Path, classes: tuple[str, ...] | None, columns: tuple[str, str] = ("x", "y")) -> Path:
    """Train on 60 points of the plane: a class per sector, or a real target."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) / (2 * np.pi) + 0.5
    sectors = [int(turn * len(classes or ())) for turn in angle]
    target = X[:, 0] * X[:, 1] if classes is None else [classes[sector % len(classes)] for sector in sectors]
    pd.DataFrame({columns[0]: X[:, 0], columns[1]: X[:, 1], "target": target}).to_csv(folder / "mine.csv", index=False)
    overrides = (f"dataset.path={folder / 'mine.csv'}", "dataset.target=target", "N=30", "steps=40", "threads=1")
    run(
        composed("dataset=csv", *overrides, f"dataset.task={'regression' if classes is None else 'null'}"),
        folder / "run",
    )
    return folder / "run"


def sweep_of(folder: Path, values: list[dict[str, str]]) -> Path:
    """Run a sweep of small runs over numbers at the root of the config."""
    sweep = SweepFolder(folder / "sweeps" / "mine")
    jobs = []
    for number, swept in enumerate(values):
        path = folder / "runs" / str(number)
        run(small(steps=30, **{key: json.loads(value) for key, value in swept.items()}), path)
        jobs.append(SweepJob(number, swept, 30, os.path.relpath(path, sweep.path)))
    sweep.create("a test", jobs)
    return sweep.path


def hostile_run(folder: Path) -> Path:
    """Write a run whose folder, features, classes, target, command and errors are the same attack."""
    folder_of_run = plane_run(folder, (f"no {HOSTILE}", f"yes {HOSTILE}"), (f"x {HOSTILE}", f"y {HOSTILE}"))
    config = yaml.safe_load((folder_of_run / "config.yaml").read_text())
    config["dataset"]["path"] = config["dataset"]["target"] = HOSTILE
    (folder_of_run / "config.yaml").write_text(yaml.safe_dump(config))
    status = json.loads((folder_of_run / "status.json").read_text())
    status |= dict.fromkeys(("command", "host", "error", "started", "engine", "data_sha256"), HOSTILE)
    status["versions"] = {HOSTILE: HOSTILE}
    status["settings_sha256"] = digest(build(TrainConfig, config))
    (folder_of_run / "status.json").write_text(json.dumps(status))
    accuracy = pd.read_csv(folder_of_run / "accuracy.csv")
    accuracy.loc[len(accuracy)] = [HOSTILE, HOSTILE, *accuracy.iloc[0, 2:]]
    accuracy.to_csv(folder_of_run / "accuracy.csv", index=False)
    return folder_of_run.rename(folder / HOSTILE.replace("/", "\\"))


@contextmanager
def serving(*folders: Path) -> Iterator[ReportServer]:
    """Run the server of a watched page in a thread."""
    with ReportServer(PageBuilder(list(folders)), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


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
