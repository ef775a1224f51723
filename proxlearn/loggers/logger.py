"""The interface through which the training loop uses every logger, and the registry of loggers.

At the start of each session, a logger reads metrics.csv and logs the rows that it failed to log in earlier sessions, so
that no row is lost. The package of a logger is imported only when the logger is used.
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
from typing import Any, Protocol, cast

from proxlearn.config.schema import LoggerConfig
from proxlearn.core.registry import LOGGER_GROUP, Registry, describe_error
from proxlearn.errors import InputError, ProxlearnError

Row = Mapping[str, float | int | bool | None]
"""A row of metrics.csv: ``step`` and the metrics, by name; an empty cell is None."""


@dataclass(frozen=True)
class RunInfo:
    """Information about a run, which is passed to its loggers."""

    folder: Path
    dataset: str
    settings: Mapping[str, str]
    """The settings that determine the trajectory, which are the same in every session."""
    other_settings: Mapping[str, str]
    """The other settings, which may differ between sessions, such as `steps` and `threads`."""


class RunLogger(Protocol):
    """The interface of a logger during one session of a run."""

    def begin(self, metrics: Path) -> None:
        """Start the session, and log the rows of metrics.csv that have not been logged yet."""

    def log_row(self, row: Row) -> None:
        """Log the next row, unless an earlier session has logged it."""

    def log_plots(self, paths: Iterable[Path], step: int) -> None:
        """Log the plots (PNG) of the cloud at ``step``."""

    def close(self, state: str) -> None:
        """End the session; ``state`` is finished, stopped or failed."""


METHODS = ("begin", "log_row", "log_plots", "close")
"""The methods of a RunLogger."""


class NoLogger:
    """The logger for logger=csv, which does nothing, because metrics.csv is always written."""

    def begin(self, metrics: Path) -> None: ...

    def log_row(self, row: Row) -> None: ...

    def log_plots(self, paths: Iterable[Path], step: int) -> None: ...

    def close(self, state: str) -> None: ...


class SeveralLoggers:
    """A group of loggers that all receive the same rows and plots."""

    def __init__(self, loggers: Iterable[RunLogger]) -> None:
        self._loggers = tuple(loggers)

    def begin(self, metrics: Path) -> None:
        for logger in self._loggers:
            logger.begin(metrics)

    def log_row(self, row: Row) -> None:
        for logger in self._loggers:
            logger.log_row(row)

    def log_plots(self, paths: Iterable[Path], step: int) -> None:
        plots = list(paths)
        for logger in self._loggers:
            logger.log_plots(plots, step)

    def close(self, state: str) -> None:
        for logger in self._loggers:
            logger.close(state)


class PluginLogger:
    """A logger of another package; if it fails, a warning is issued, and the run continues without it."""

    def __init__(self, config: LoggerConfig, info: RunInfo, warn: Callable[[str], None]) -> None:
        self._name, self._warn = config.name, warn
        self._logger: Any = None
        self._try(lambda: setattr(self, "_logger", LOGGERS[config.name](config, info, warn)))

    def begin(self, metrics: Path) -> None:
        self._call("begin", metrics)

    def log_row(self, row: Row) -> None:
        self._call("log_row", row)

    def log_plots(self, paths: Iterable[Path], step: int) -> None:
        self._call("log_plots", paths, step)

    def close(self, state: str) -> None:
        self._call("close", state)

    def _call(self, method: str, *arguments: Any) -> None:
        if self._logger is not None:
            self._try(lambda: getattr(self._logger, method)(*arguments))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except ProxlearnError:
            raise
        except Exception as error:
            self._logger = None
            self._warn(
                f"logger={self._name} failed ({describe_error(error)}); all rows are still written to metrics.csv"
            )


@dataclass(frozen=True)
class LoggerKind:
    """The class of a logger, given by its module and its name, and the package that this class needs."""

    module: str
    name: str
    package: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the package reads at import; values that the user has set are not changed."""


LOGGER_KINDS = {
    "tensorboard": LoggerKind("proxlearn.loggers.tensorboard_events", "TensorBoardLogger", "tensorboard"),
    "mlflow": LoggerKind(
        "proxlearn.loggers.mlflow_run",
        "MlflowLogger",
        "mlflow",
        # By default, MLflow sends telemetry, stores runs only in databases and waits minutes for a silent server.
        {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_ALLOW_FILE_STORE": "true",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
        },
    ),
    "wandb": LoggerKind(
        "proxlearn.loggers.wandb_run",
        "WandbLogger",
        "wandb",
        # By default, wandb reports its own errors to its developers.
        {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"},
    ),
}
"""Loggers by name. A new logger needs an entry here, its name in ``schema.Logger``, and an extra of the same name."""
LOGGERS: Registry[Any] = Registry(
    "logger",
    LOGGER_GROUP,
    {"csv": NoLogger, **LOGGER_KINDS},
    f"a class with the methods {', '.join(METHODS)}",
    lambda part: isinstance(part, type) and all(callable(getattr(part, method, None)) for method in METHODS),
)
"""proxlearn's own loggers, and the classes that packages add through entry points of the group ``proxlearn.loggers``.

Such a class has the methods of RunLogger and is called with (config, info, warn), like proxlearn's own classes."""
DATABASE_URI = re.compile(r"(sqlite|postgresql|mysql|mssql)(\+\w+)?:")
EVENTS_FOLDER = "tensorboard"
"""Folder of TensorBoard's event files in the run folder."""
DEFAULT_STORES = {"mlflow": "outputs/mlruns", "wandb": "outputs/wandb"}
"""Default stores of loggers; a logger that is not the first in a list uses its default instead of logger.uri."""
WANDB_FILE = "wandb.json"
"""File in the run folder that contains the run's id in wandb and the last logged step."""
RUN_ID_FILE = "mlflow.json"
"""File in the run folder that contains the run's id in MLflow."""


def each_logger(config: LoggerConfig) -> list[LoggerConfig]:
    """Return a config per logger; the first logger uses logger.uri, and the others use their default stores."""
    return [
        LoggerConfig(name, config.uri if name == config.name else DEFAULT_STORES.get(name), None)
        for name in config.names
    ]


def check_logger(config: LoggerConfig) -> None:
    """Raise InputError if the package of a logger is not installed or cannot be imported."""
    for each in each_logger(config):
        _check_one(each)


def _check_one(config: LoggerConfig) -> None:
    if config.name not in LOGGERS.own_names:
        LOGGERS[config.name]
        return
    kind = LOGGER_KINDS.get(config.name)
    if kind is not None and find_spec(kind.package) is None:
        problem = f"logger={config.name} needs the package {kind.package}, which is not installed"
        raise InputError(problem, f"run `pip install 'proxlearn[{config.name}]'`, or leave out logger={config.name}")
    if config.uri is not None and DATABASE_URI.match(config.uri) and find_spec("sqlalchemy") is None:
        raise InputError("logger.uri names a database, which needs the full MLflow package", "run `pip install mlflow`")


def open_logger(config: LoggerConfig, info: RunInfo, warn: Callable[[str], None]) -> RunLogger:
    """Return the logger that a config describes; ``warn`` receives messages about failures that do not stop the run."""
    loggers = [_open_one(each, info, warn) for each in each_logger(config)]
    if len(loggers) == 1:
        return loggers[0]
    return SeveralLoggers(loggers) if loggers else NoLogger()


def _open_one(config: LoggerConfig, info: RunInfo, warn: Callable[[str], None]) -> RunLogger:
    if config.name not in LOGGER_KINDS:
        return PluginLogger(config, info, warn)
    kind = LOGGER_KINDS[config.name]
    for name, value in kind.environment.items():
        os.environ.setdefault(name, value)
    logger = getattr(importlib.import_module(kind.module), kind.name)(config, info, warn)
    return cast(RunLogger, logger)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of metrics.csv."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _parse_value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _parse_value(name: str, text: str) -> float | int | bool | None:
    if name == "step":
        return int(text)
    if text in ("", "True", "False"):
        return None if text == "" else text == "True"
    return float(text)
