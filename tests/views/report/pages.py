"""Folders for report pages: a run on two features, a sweep, and a run in which every string is an attack."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
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
