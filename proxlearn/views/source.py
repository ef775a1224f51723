"""What a view may know: the run folder's files, read into memory."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from proxlearn.errors import InputError
from proxlearn.run import sealed
from proxlearn.run.folder import PlainLoader
from proxlearn.run.metrics_version import Conversion, version_of


@dataclass(frozen=True)
class Run:
    """A run folder as the views see it; a file that is not there yet is None."""

    path: Path
    config: dict[str, Any]
    status: dict[str, Any]
    model: dict[str, Any]
    metrics: pd.DataFrame
    accuracy: pd.DataFrame | None
    confusion: pd.DataFrame | None
    points: pd.DataFrame | None

    @property
    def title(self) -> str:
        config = self.config
        # A relative epsilon is a multiple of a length: one must not take it for epsilon itself.
        unit = "" if config.get("epsilon_quantile") is None else "×NN²"
        numbers = f"β={config['beta']:g}, ε={config['epsilon']:g}{unit}"
        return f"{config['dataset']['name']}, {numbers}, N={config['N']}"


def read(path: Path) -> Run:
    """Read a finished or running run."""
    try:
        config = _config(path)
        return Run(
            path=path,
            config=config,
            status=json.loads((path / "status.json").read_text(encoding="utf-8")),
            model=json.loads((path / "model.json").read_text(encoding="utf-8")),
            metrics=read_metrics(path, config),
            accuracy=_table(path / "accuracy.csv"),
            confusion=_table(path / "confusion.csv"),
            points=_table(path / "points.csv"),
        )
    except FileNotFoundError as error:
        raise InputError(
            f"{path} is not a run folder: no {Path(error.filename).name} in it", "name a folder `train` made"
        ) from error


def read_metrics(path: Path, config: dict[str, Any]) -> pd.DataFrame:
    """metrics.csv of a run folder; the rows of version 0.1.0 with the meaning that they have now."""
    with (path / "metrics.csv").open(encoding="utf-8") as file:
        version = version_of(file.readline())
        if version != 1:
            return pd.read_csv(path / "metrics.csv")
        file.seek(0)
        content = file.read()
    return pd.read_csv(io.StringIO(Conversion(config, lambda step: _stored_epsilon(path, step))(content)))


def _stored_epsilon(path: Path, step: int) -> float | None:
    try:
        epsilon = sealed.unseal(sealed.path_of(path / "checkpoints", step)).state.get("epsilon")
    except sealed.InvalidCheckpoint:
        return None
    return epsilon if isinstance(epsilon, float) else None


def _config(path: Path) -> dict[str, Any]:
    """The run's config, with what was selected in the place of what it left open."""
    config: dict[str, Any] = yaml.load((path / "config.yaml").read_text(encoding="utf-8"), Loader=PlainLoader)
    if (path / "selection.json").is_file():
        chosen = json.loads((path / "selection.json").read_text(encoding="utf-8"))["chosen"]
        config |= {key: value for key, value in chosen.items() if config.get(key) is None}
    return config


def _table(path: Path) -> pd.DataFrame | None:
    return pd.read_csv(path) if path.is_file() else None
