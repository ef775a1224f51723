"""A package that adds a neuron, a loss, a weight update, a dataset and a logger to proxlearn through entry points."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from proxlearn.config.schema import DatasetConfig, LoggerConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import Loss
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.data.dataset_files import digest
from proxlearn.data.table import DatasetInfo, Table
from proxlearn.loggers.logger import Row, RunInfo, read_rows


class Bump(Neuron):
    """The neuron height exp(-|exp(width) (x - centre)|^2 / 2), with one width per feature."""

    name = "gaussian bump"

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def coordinates(self, n_x: int) -> dict[str, int]:
        return {"height": 1, "centre": n_x, "width": n_x}

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        n_x = X.shape[1]
        height, centre, width = theta.split((1, n_x, n_x), dim=1)
        scaled = (X - centre[:, None]) * width.exp()[:, None]
        return (height * torch.exp(-scaled.square().sum(-1) / 2))[:, None]


class LogCosh(Loss):
    """The loss log cosh(f - y), whose derivative is computed by automatic differentiation."""

    name = "logcosh"
    tasks = ("regression",)

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        distance = (f - y).abs()
        return distance + torch.nn.functional.softplus(-2 * distance) - np.log(2)


def tempered_weights(cloud: PointCloud, theta: Tensor, w: Tensor, hyper: Hyper, z0: Tensor) -> tuple[Tensor, None]:
    """Return rho ~ rho_{k-1} exp(-h w / 2), with the same mass."""
    log_rho = cloud.log_rho - hyper.h * w / 2
    return log_rho + (torch.logsumexp(cloud.log_rho, 0) - torch.logsumexp(log_rho, 0)), None


def load_hills(config: DatasetConfig) -> Table:
    X = np.random.default_rng(0).uniform(-2, 2, (60, 2))
    target = np.exp(-np.square(X).sum(1))
    return Table(X, target, ("east", "north"), "regression", digest(X.tobytes() + target.tobytes()))


hills = SimpleNamespace(
    INFO=DatasetInfo(60, 2, None, "computed", "none needed"),
    load=load_hills,
    CONFIG={
        "neuron": "bump",
        "initial": {"height": (-1.0, 1.0), "centre": (-1.5, 1.5), "width": (-0.5, 0.5)},
        "default_hyperparameters": {"beta": 100.0, "h": 0.01, "epsilon": 0.1, "N": 30, "steps": 20},
    },
)


class JsonLines:
    """A logger that appends the rows to ``logger.uri``, one JSON object per line."""

    def __init__(self, config: LoggerConfig, info: RunInfo, warn: Callable[[str], None]) -> None:
        self.path = Path(config.uri or "rows.jsonl")

    def begin(self, metrics: Path) -> None:
        self.path.write_text("", encoding="utf-8")
        for row in read_rows(metrics):
            self.log_row(row)

    def log_row(self, row: Row) -> None:
        if os.environ.get("BUMP_LOGGER_FAILS"):
            raise ConnectionError("the line is dead")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(row)) + "\n")

    def log_plots(self, paths: Iterable[Path], step: int) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"plots": sorted(path.name for path in paths)}) + "\n")

    def close(self, state: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"state": state}) + "\n")
