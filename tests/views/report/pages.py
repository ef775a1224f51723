"""Folders to make pages of: a run over the plane, a sweep, and one whose every string is an attack."""

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

from proxlearn.config.schema import TrainConfig, build, digest
from proxlearn.run.sweep_folder import SweepFolder, SweepJob
from proxlearn.views.report.page import Builder
from proxlearn.views.report.server import Server

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;</table>\u2028{{data}}${1} Ünïcødé 漢字 🙂"


def plane_run(folder: Path, classes: tuple[str, ...] | None, columns: tuple[str, str] = ("x", "y")) -> Path:
    """A run on 60 points of the plane: a class in each sector, or a real target."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) / (2 * np.pi) + 0.5
    sectors = [int(each * len(classes or ())) for each in angle]
    target = X[:, 0] * X[:, 1] if classes is None else [classes[sector % len(classes)] for sector in sectors]
    pd.DataFrame({columns[0]: X[:, 0], columns[1]: X[:, 1], "target": target}).to_csv(folder / "mine.csv", index=False)
    words = (f"dataset.path={folder / 'mine.csv'}", "dataset.target=target", "N=30", "steps=40", "threads=1")
    run(composed("dataset=csv", *words, f"dataset.task={'regression' if classes is None else 'null'}"), folder / "run")
    return folder / "run"


def sweep_of(folder: Path, values: list[dict[str, str]]) -> Path:
    """A sweep of small runs over numbers at the root."""
    sweep = SweepFolder(folder / "sweeps" / "mine")
    jobs = []
    for number, own in enumerate(values):
        path = folder / "runs" / str(number)
        run(small(steps=30, **{key: json.loads(value) for key, value in own.items()}), path)
        jobs.append(SweepJob(number, own, 30, os.path.relpath(path, sweep.path)))
    sweep.create("a test", jobs)
    return sweep.path


def hostile_run(folder: Path) -> Path:
    """A run whose folder, features, classes, target, command and errors are all the same attack."""
    made = plane_run(folder, (f"no {HOSTILE}", f"yes {HOSTILE}"), (f"x {HOSTILE}", f"y {HOSTILE}"))
    config = yaml.safe_load((made / "config.yaml").read_text())
    config["dataset"]["path"] = config["dataset"]["target"] = HOSTILE
    (made / "config.yaml").write_text(yaml.safe_dump(config))
    status = json.loads((made / "status.json").read_text())
    status |= dict.fromkeys(("command", "host", "error", "started", "engine", "data_sha256"), HOSTILE)
    status["versions"] = {HOSTILE: HOSTILE}
    status["settings_sha256"] = digest(build(TrainConfig, config))
    (made / "status.json").write_text(json.dumps(status))
    accuracy = pd.read_csv(made / "accuracy.csv")
    accuracy.loc[len(accuracy)] = [HOSTILE, HOSTILE, *accuracy.iloc[0, 2:]]
    accuracy.to_csv(made / "accuracy.csv", index=False)
    return made.rename(folder / HOSTILE.replace("/", "\\"))


@contextmanager
def serving(*folders: Path) -> Iterator[Server]:
    """The server of a watched page, in a thread."""
    with Server(Builder(list(folders)), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
