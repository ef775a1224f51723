"""A run and the logger that was chosen for it: what the logger is told, from the run folder alone."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proxlearn.config.schema import NOT_TRAJECTORY, LoggerConfig
from proxlearn.errors import RunError
from proxlearn.loggers.logger import NoLogger, RunInfo, RunLogger, open_logger
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.run_snapshot import take_snapshot
from proxlearn.run.selection import read_chosen
from proxlearn.terminal.notice import notice


@contextlib.contextmanager
def logger_session(choice: LoggerConfig, folder: RunFolder, warn: Callable[[str], None]) -> Iterator[RunLogger]:
    """The run's logger, which learns of a failure too."""
    logger = NoLogger() if choice.name == "csv" else open_logger(choice, run_info(folder), warn)
    try:
        yield logger
    except BaseException:
        logger.close("failed")
        raise


def log_session_end(choice: LoggerConfig, path: Path, drawn: Iterable[Path]) -> None:
    """Tell the logger of what was drawn at the end of a session, and of rows that it missed."""
    if choice.name == "csv":
        return
    folder, now = RunFolder(path), take_snapshot(path)
    try:
        with logger_session(choice, folder, notice) as logger:
            logger.begin(folder.metrics)
            logger.pictures([each for each in drawn if each.suffix == ".png"], now.step)
            logger.close(now.state)
    except RunError as error:
        # The run itself is done, and everything is in its folder.
        notice(str(error))


def run_info(folder: RunFolder) -> RunInfo:
    """The settings of a run, with what was selected in the place of what they leave open."""
    config = folder.read_config()
    chosen = (read_chosen(folder) if config.selected else None) or {}
    config = dataclasses.replace(config, **{key: chosen[key] for key in config.selected if key in chosen})
    every = flatten(dataclasses.asdict(config))
    changing = {key for key in every if key.partition(".")[0] in NOT_TRAJECTORY or key == "device.threads"}
    return RunInfo(
        folder.path,
        config.dataset.name,
        {key: every[key] for key in every if key not in changing},
        # Not the logger's own: its address may hold a password.
        {key: every[key] for key in every if key in changing and not key.startswith("logger.")},
    )


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``{"dataset": {"name": "sine"}}`` as ``{"dataset.name": "sine"}``."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        found |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: str(value)}
    return found
