"""The logger of a run during a session; the run folder also contains everything that is logged."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proxlearn.config.run_name import NOT_TRAJECTORY
from proxlearn.config.schema import LoggerConfig, config_values
from proxlearn.errors import RunError
from proxlearn.loggers.logger import NoLogger, RunInfo, RunLogger, open_logger
from proxlearn.run.observed_status import take_snapshot
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.selection import read_chosen
from proxlearn.terminal.streams import notice


@contextlib.contextmanager
def logger_session(choice: LoggerConfig, folder: RunFolder, warn: Callable[[str], None]) -> Iterator[RunLogger]:
    """Yield the logger of a run; if the block raises an exception, close the logger with the state ``failed``."""
    logger = open_logger(choice, run_info(folder), warn) if choice.names else NoLogger()
    try:
        yield logger
    except BaseException:
        logger.close("failed")
        raise


def log_session_end(choice: LoggerConfig, path: Path, drawn: Iterable[Path]) -> None:
    """Log the plots among the files ``drawn`` at the end of a session, and the rows that are not logged yet."""
    if not choice.names:
        return
    folder, snapshot = RunFolder(path), take_snapshot(path)
    try:
        with logger_session(choice, folder, notice) as logger:
            logger.begin(folder.metrics)
            logger.log_plots([path for path in drawn if path.suffix == ".png"], snapshot.step)
            logger.close(snapshot.state)
    except RunError as error:
        # The run has ended, and its folder contains all results, so a failure of the logger only causes a notice.
        notice(str(error))


def run_info(folder: RunFolder) -> RunInfo:
    """Return the description of a run for its logger; selected values replace settings that are null."""
    config = folder.read_config()
    selected = (read_chosen(folder) if config.selected else None) or {}
    config = dataclasses.replace(config, **{key: selected[key] for key in config.selected if key in selected})
    settings = flatten(config_values(config))
    changing = {key for key in settings if key.partition(".")[0] in NOT_TRAJECTORY}
    return RunInfo(
        folder.path,
        config.dataset.name,
        {key: settings[key] for key in settings if key not in changing},
        # The settings of the logger are left out, because its address may contain a password.
        {key: settings[key] for key in settings if key in changing and not key.startswith("logger.")},
    )


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return ``{"dataset": {"name": "sine"}}`` as ``{"dataset.name": "sine"}``, with values converted to strings.

    Unlike ``flat_settings``, this function does not convert tuples to lists, because MLflow requires the same
    parameters in every session of a run.
    """
    flat: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: str(value)}
    return flat
