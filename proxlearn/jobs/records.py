"""Records of the states of jobs: FOLDER/NAME.json for each job, next to FOLDER/NAME.log with its output.

A killed job cannot report its end, and its supervisor may be a process on another machine. Therefore, the states, the
results and the request to stop are stored in files in a folder that all processes can read. This module does not import
torch.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import UnreadableFile, read_json

DONE = "finished"
ACTIVE = ("running", "waiting")


@dataclass(frozen=True)
class JobRecord:
    """The recorded state of a job, and the process that recorded it."""

    state: str
    """One of running, waiting (another process uses the run folder), finished, stopped, failed, killed, skipped."""
    session: str
    error: str | None = None
    pid: int = 0
    host: str = ""
    time: str = ""
    key: str | None = None
    """The cache key of the result."""
    result: dict[str, Any] | None = None
    """The return value of the job's function."""

    @property
    def has_ended(self) -> bool:
        return self.state not in ACTIVE


class JobRecords:
    """The records, logs and stop requests of the jobs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def write(
        self,
        name: str,
        state: str,
        session: str,
        error: str | None = None,
        key: str | None = None,
        result: dict[str, Any] | None = None,
    ) -> None:
        """Record the state of a job, with the process ID and the host of this process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        values = asdict(JobRecord(state, session, error, os.getpid(), platform.node(), now))
        del values["key"], values["result"]
        if result is not None:
            values |= {"key": key, "result": result}
        write_json(self.path(name), values)

    def read(self, name: str) -> JobRecord | None:
        """Return the record of a job, or None if the record is missing or damaged."""
        try:
            return _parse_record(read_json(self.path(name)))
        except (ValueError, TypeError, UnreadableFile):
            return None

    def has_ended(self, name: str, session: str) -> bool:
        """Return whether a job has ended in the session ``session``."""
        record = self.read(name)
        return record is not None and record.session == session and record.has_ended

    def remove(self, name: str) -> None:
        """Delete the record of a job, so that the job can be started again."""
        self.path(name).unlink(missing_ok=True)

    def remove_folder(self) -> None:
        """Delete the folder of the records if it is empty."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _stop_file(self, session: str) -> Path:
        return self.folder / f".stop-{session}"

    def request_stop(self, session: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stop_file(session).touch()

    def stop_requested(self, session: str) -> bool:
        return self._stop_file(session).exists()

    def clear_stop(self, session: str) -> None:
        self._stop_file(session).unlink(missing_ok=True)


def _parse_record(values: Any) -> JobRecord:
    """Parse the values of a record, which are not trusted; raise TypeError or ValueError if they are not valid."""
    record = JobRecord(**values)
    texts = (record.state, record.session, record.error or "", record.host, record.time, record.key or "")
    if not all(isinstance(text, str) for text in texts) or type(record.pid) is not int:
        raise ValueError("a field has the wrong type")
    if record.result is not None and not isinstance(record.result, dict):
        raise ValueError("the result has the wrong type")
    return record
