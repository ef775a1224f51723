"""The current state of a run, read quickly from the small files in its folder, without importing torch.

The status is verified: if it is "running" but the process of the run no longer exists, the run is reported as dead.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxlearn.config.run_name import digest
from proxlearn.errors import InputError
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, open_regular, read_json
from proxlearn.run.lock import is_locked
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.run_folder import RunFolder


@dataclass(frozen=True)
class Outcome:
    """The state of a run at the end of a session."""

    folder: Path
    state: str
    step: int
    signal: int | None = None
    """The signal that stopped the session, or None if no signal stopped it."""
    already_finished: bool = False
    longest_steps: int = 0
    """The largest number of steps that any command requested for the run."""


SILENT_SECONDS = 120.0
"""Age of status.json, in seconds, above which a run on another machine is considered dead. A time stamp that is more
than this time in the future also counts as old. The status is written every two seconds, but the first compilation or a
step of a very large cloud takes longer.
"""
TAIL_BYTES = 16384
"""Number of bytes that are read from the end of metrics.csv."""
STATES = ("running", "finished", "stopped", "failed")
"""The states that status.json can contain."""
NEWEST = (
    *("test_risk_weighted", "test_risk_unweighted", "test_accuracy_weighted", "test_accuracy_unweighted"),
    *("validation_risk_weighted", "validation_accuracy_weighted"),
    *("validation_log_loss_weighted", "validation_rmse_weighted"),
)
"""The metrics whose newest values are part of a snapshot."""


@dataclass(frozen=True)
class RunSnapshot:
    """The state of a run at the time when its folder was read."""

    folder: Path
    state: str
    """One of running, finished, stopped, failed, dead, unreadable, or absent if no run has started."""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    session_rate: float | None = None
    """Recursions per second of the newest session, excluding compilation.

    The rate is 0 if it is unknown, and None for a run of version 0.1.0.
    """
    started: str = ""
    pid: int = 0
    host: str = ""
    error: str | None = None
    data_sha256: str = ""
    settings_sha256: str | None = None
    """Digest of the settings that determine the trajectory, or None if no file contains it."""
    kappa: float | None = None
    """beta epsilon / h of the newest step; None without a proximal step, and in runs of earlier versions."""
    newest: dict[str, float] = field(default_factory=dict)
    """The values of the metrics in NEWEST, from the newest row of metrics.csv."""
    newest_step: int | None = None
    """The step of the newest row of metrics.csv; it may differ from ``step``, which is read from status.json."""

    @property
    def rate(self) -> float:
        """Recursions per second of the running session, or of all sessions together if no session is running."""
        if self.state == "running" and self.session_rate is not None:
            return self.session_rate
        return self.step / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The estimated time in seconds until the run ends; None for a run that is not running or has no known rate."""
        return (self.steps - self.step) / self.rate if self.state == "running" and self.rate > 0 else None


def take_snapshot(folder: Path) -> RunSnapshot:
    """Return the state of the run in a folder; unreadable files give the state `unreadable` instead of an error."""
    try:
        refuse_interrupted(folder)
    except InputError as error:
        return RunSnapshot(folder, "unreadable", error=str(error))
    try:
        status = _read_status(folder)
    except UnreadableFile as error:
        return RunSnapshot(folder, "unreadable", error=error.problem)
    if status is None:
        return RunSnapshot(folder, "absent")
    state = status.get("state")
    if state not in STATES or not all(_is_number(status.get(key)) for key in ("step", "steps", "seconds")):
        return RunSnapshot(
            folder, "unreadable", error=f"{RunFolder(folder).status} does not describe the state of a run"
        )
    host = str(status.get("host", ""))
    if state == "running" and not _is_alive(folder, host):
        state = "dead"
    newest_step, newest = _read_newest(RunFolder(folder).metrics)
    return RunSnapshot(
        folder=folder,
        state=state,
        step=int(status["step"]),
        steps=int(status["steps"]),
        seconds=float(status["seconds"]),
        session_rate=_session_rate(status),
        started=str(status.get("started", "")),
        pid=int(status["pid"]) if _is_number(status.get("pid")) else 0,
        host=host,
        error=str(status["error"]) if status.get("error") else None,
        data_sha256=str(status.get("data_sha256", "")),
        settings_sha256=_settings_sha256(folder, status),
        kappa=float(status["kappa"]) if _is_number(status.get("kappa")) else None,
        newest=newest,
        newest_step=newest_step,
    )


def _read_status(folder: Path) -> dict[str, Any] | None:
    try:
        return read_json(RunFolder(folder).status)
    except AbsentFile:
        return None


def _settings_sha256(folder: Path, status: dict[str, Any]) -> str | None:
    stored = status.get("settings_sha256")
    if isinstance(stored, str):
        return stored
    try:
        # Runs of version 0.1.0 do not store the digest; it is computed from their config.
        return digest(RunFolder(folder).read_config())
    except InputError:
        return None


def _is_alive(folder: Path, host: str) -> bool:
    """Return whether the process of a run exists: it has locked the folder, or has written its status recently."""
    locked = is_locked(folder)
    if locked or (locked is False and host == platform.node()):
        return locked
    # The locks of other machines are not always visible, but recent writes are. A time stamp far in the future comes
    # from a wrong clock and would never become old, so it does not count as recent.
    try:
        return abs(time.time() - RunFolder(folder).status.stat().st_mtime) < SILENT_SECONDS
    except OSError:
        return False


def _read_newest(path: Path) -> tuple[int | None, dict[str, float]]:
    """Return the step and the metrics of the last complete row of metrics.csv.

    The step is None, and the metrics are empty, if no such row can be read. Only the end of the file is read, because
    the file may be long.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            names = file.readline(TAIL_BYTES).decode().strip().split(",")
            start = file.tell()
            file.seek(max(start, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            rows = [row.split(",") for row in file.read(TAIL_BYTES).decode().split("\n")[:-1]]
        row = next(row for row in reversed(rows) if len(row) == len(names))
        cells = dict(zip(names, row, strict=True))
        return int(cells["step"]), {name: float(cells[name]) for name in NEWEST if cells.get(name)}
    except (OSError, ValueError, KeyError, StopIteration, UnreadableFile):
        return None, {}


def _session_rate(status: dict[str, Any]) -> float | None:
    """Return the recursions per second of the newest session: None for a run of version 0.1.0, 0 if unknown."""
    if "rate" not in status:
        return None
    return float(status["rate"]) if _is_number(status["rate"]) else 0.0


def _is_number(value: Any) -> bool:
    """Return whether a value from a JSON file is a number that can be a count or a duration."""
    return type(value) in (int, float) and 0 <= value < 1e18
