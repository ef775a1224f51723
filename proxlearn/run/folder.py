"""The run folder: the only thing that passes between a run and whoever looks at it later."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from proxlearn.errors import InputError
from proxlearn.run.files import write_atomically, write_json
from proxlearn.schema import TrainConfig, build, trajectory


class RunFolder:
    """Names of the files, and the reading and writing of the small ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.status = path / "status.json"
        self.metrics = path / "metrics.csv"
        self.model = path / "model.json"
        self.accuracy = path / "accuracy.csv"
        self.confusion = path / "confusion.csv"
        self.points = path / "points.csv"
        self.log = path / "train.log"
        self.checkpoints = path / "checkpoints"

    def create(self, config: TrainConfig) -> None:
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(json.loads(json.dumps(dataclasses.asdict(config))), sort_keys=False)
        write_atomically(self.config, text.encode())

    def read_config(self) -> TrainConfig:
        return build(TrainConfig, yaml.safe_load(self.config.read_text(encoding="utf-8")))

    def read_status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.status.read_text(encoding="utf-8"))
        return status

    def write_status(self, status: dict[str, Any]) -> None:
        write_json(self.status, status)

    def holds_run(self) -> bool:
        return self.status.exists() and self.config.exists()

    def check_same_run(self, config: TrainConfig) -> None:
        """Refuse to continue another run's folder."""
        if trajectory(self.read_config()) != trajectory(config):
            raise InputError(
                f"{self.path} holds a run with other settings", "choose another hydra.run.dir, or leave it out"
            )

    def journal(self) -> logging.Logger:
        """A logger of this run's own: everything into train.log, warnings to the terminal too."""
        logger = logging.Logger("proxlearn.run")
        file = logging.FileHandler(self.log, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(file)
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setLevel(logging.WARNING)
        terminal.setFormatter(logging.Formatter("proxlearn: %(message)s"))
        logger.addHandler(terminal)
        return logger


def check_writable(path: Path) -> None:
    """Refuse an output folder that could not be created, before anything is."""
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot write to {existing}, needed for the run folder {path}", "choose another hydra.run.dir"
        )


def remove_if_empty(path: Path) -> None:
    """Take back a folder in which nothing was stored, and parents that held nothing else, up to where we are."""
    for folder in (path, *path.parents):
        if Path.cwd().is_relative_to(folder):
            return
        try:
            folder.rmdir()
        except OSError:
            return
