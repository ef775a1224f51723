"""One small interface for every logger, so that the loop does not know which one there is.

metrics.csv is the truth: a logger is told its rows at the start of each session and makes up for what it lacks, so that
it never needs to be trusted. Nothing of a logger's package is imported before its name is asked for.
"""

from __future__ import annotations

import csv
import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from proxlearn.config.schema import LoggerConfig
from proxlearn.errors import InputError

Row = Mapping[str, float | int | bool | None]
"""A row of metrics.csv: ``step``, and the metrics by their names; None where there is no figure."""


@dataclass(frozen=True)
class RunInfo:
    """What a logger knows of a run besides its rows."""

    folder: Path
    dataset: str
    settings: Mapping[str, str]
    """What determines the trajectory: the same in every session."""
    other_settings: Mapping[str, str]
    """The rest, which may change from session to session: `steps`, `threads` and the like."""


class RunLogger(Protocol):
    """One session of a run, as it is told to a logger."""

    def begin(self, metrics: Path) -> None:
        """Go on after the rows that metrics.csv holds: those that the logger lacks are added."""

    def row(self, row: Row) -> None:
        """The next row; one that an earlier session logged already is not logged twice."""

    def pictures(self, paths: Iterable[Path], step: int) -> None:
        """The plots (PNG) of the cloud at ``step``."""

    def close(self, state: str) -> None:
        """The end of the session: finished, stopped or failed."""


class NoLogger:
    """metrics.csv is all that is wanted."""

    def begin(self, metrics: Path) -> None: ...

    def row(self, row: Row) -> None: ...

    def pictures(self, paths: Iterable[Path], step: int) -> None: ...

    def close(self, state: str) -> None: ...


@dataclass(frozen=True)
class LoggerKind:
    """A logger's class, and the package that it cannot do without."""

    module: str
    name: str
    package: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the package reads as it is imported, unless the user has set it otherwise."""


LOGGER_KINDS = {
    "tensorboard": LoggerKind("proxlearn.loggers.tensorboard_events", "TensorBoardLogger", "tensorboard"),
    "mlflow": LoggerKind(
        "proxlearn.loggers.mlflow_run",
        "MlflowLogger",
        "mlflow",
        # It would tell its makers of its use, take databases only, and wait for minutes for a server that is down or
        # does not answer.
        {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_ALLOW_FILE_STORE": "true",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
        },
    ),
}
"""Every logger: a new one is added here, to ``Logger`` in the schema, and as an extra of its name."""
DATABASE_URI = re.compile(r"(sqlite|postgresql|mysql|mssql)(\+\w+)?:")
EVENTS_FOLDER, RUN_ID_FILE = "tensorboard", "mlflow.json"
"""What a logger keeps in the run folder: a folder of event files, and which run of MLflow's it is."""


def check_logger(config: LoggerConfig) -> None:
    """Refuse a logger whose package is not here, before anything is begun."""
    kind = LOGGER_KINDS.get(config.name)
    if kind is not None and find_spec(kind.package) is None:
        problem = f"logger={config.name} needs the package {kind.package}, which is not installed"
        raise InputError(problem, f"pip install 'proxlearn[{config.name}]', or leave logger= out")
    if config.uri is not None and DATABASE_URI.match(config.uri) and find_spec("sqlalchemy") is None:
        raise InputError("logger.uri names a database, for which the whole of MLflow is needed", "pip install mlflow")


def open_logger(config: LoggerConfig, about: RunInfo, warn: Callable[[str], None]) -> RunLogger:
    """The logger of the config; ``warn`` is told what goes wrong there and does not stop the run."""
    if config.name not in LOGGER_KINDS:
        return NoLogger()
    kind = LOGGER_KINDS[config.name]
    for name, value in kind.environment.items():
        os.environ.setdefault(name, value)
    made = getattr(importlib.import_module(kind.module), kind.name)(config, about, warn)
    return cast(RunLogger, made)


def read_rows(path: Path) -> list[Row]:
    """The whole rows of metrics.csv."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _parse_value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _parse_value(name: str, text: str) -> float | int | bool | None:
    if name == "step":
        return int(text)
    if text in ("", "True", "False"):
        return None if text == "" else text == "True"
    return float(text)
