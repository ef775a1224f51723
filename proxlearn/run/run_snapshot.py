"""A run seen from outside, from the small files in its folder: quick, and without importing torch.

What the files say is not taken on trust: a run that says it is running, and whose process is gone, is dead.
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

SILENT_SECONDS = 120.0
"""A run on another machine whose status is older than this, or from further in the future, is taken for dead; it is
written every two seconds, but a first compilation or a step of a very large cloud takes longer."""
TAIL_BYTES = 16384
STATES = ("running", "finished", "stopped", "failed")
"""What a run says of itself."""
NEWEST = ("test_risk_weighted", "test_risk_unweighted", "test_accuracy_weighted", "test_accuracy_unweighted")


@dataclass(frozen=True)
class RunSnapshot:
    """One look at a run."""

    folder: Path
    state: str
    """running, finished, stopped, failed, dead, unreadable, or absent where no run has begun."""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    session_rate: float | None = None
    """Recursions per second of the newest session, without compilation: 0 before any counts, None in old runs."""
    started: str = ""
    pid: int = 0
    host: str = ""
    error: str | None = None
    data_sha256: str = ""
    settings_sha256: str | None = None
    """Digest of what determines the trajectory; None where no file tells."""
    newest: dict[str, float] = field(default_factory=dict)
    """The newest row of metrics.csv: those of NEWEST that it has."""
    newest_step: int | None = None
    """The step of that row: status.json is written every two seconds, and may be ahead of the row or behind it."""

    @property
    def rate(self) -> float:
        """Recursions per second: of the session that is running, or else over all sessions."""
        if self.state == "running" and self.session_rate is not None:
            return self.session_rate
        return self.step / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        return (self.steps - self.step) / self.rate if self.state == "running" and self.rate > 0 else None


def take_snapshot(folder: Path) -> RunSnapshot:
    """Look at a run folder; files that anybody may have written give what can be read of them."""
    try:
        refuse_interrupted(folder)
    except InputError as error:
        return RunSnapshot(folder, "unreadable", error=str(error))
    try:
        status = _status(folder)
    except UnreadableFile as error:
        return RunSnapshot(folder, "unreadable", error=error.problem)
    if status is None:
        return RunSnapshot(folder, "absent")
    state = status.get("state")
    if state not in STATES or not all(_is_number(status.get(key)) for key in ("step", "steps", "seconds")):
        return RunSnapshot(folder, "unreadable", error=f"{RunFolder(folder).status} does not tell how the run goes")
    host = str(status.get("host", ""))
    if state == "running" and not _alive(folder, host):
        state = "dead"
    newest_step, newest = _newest(RunFolder(folder).metrics)
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
        newest=newest,
        newest_step=newest_step,
    )


def _status(folder: Path) -> dict[str, Any] | None:
    try:
        return read_json(RunFolder(folder).status)
    except AbsentFile:
        return None


def _settings_sha256(folder: Path, status: dict[str, Any]) -> str | None:
    stored = status.get("settings_sha256")
    if isinstance(stored, str):
        return stored
    try:
        # Runs of version 0.1.0 have it in their config only.
        return digest(RunFolder(folder).read_config())
    except InputError:
        return None


def _alive(folder: Path, host: str) -> bool:
    held = is_locked(folder)
    if held or (held is False and host == platform.node()):
        return held
    # Another machine's locks are not always seen here; that it still writes is. Clocks differ a little: a time stamp
    # far in the future was written under a clock that was wrong, and would never become old.
    try:
        return abs(time.time() - RunFolder(folder).status.stat().st_mtime) < SILENT_SECONDS
    except OSError:
        return False


def _newest(path: Path) -> tuple[int | None, dict[str, float]]:
    """Step and figures of the last whole row of metrics.csv, read from its end: it may be long, and be written now."""
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
    """None where a run of version 0.1.0 does not tell it; 0 while nothing is known of it."""
    if "rate" not in status:
        return None
    return float(status["rate"]) if _is_number(status["rate"]) else 0.0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e18
