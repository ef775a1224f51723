"""Functions that the jobs of the tests call, which can be imported in any process."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from proxlearn.errors import InputError
from proxlearn.jobs.job import JobStopped
from proxlearn.run.lock import FolderInUse
from proxlearn.run.signals import StopRequest


def count_call(folder: Path, name: str) -> int:
    """Append a byte to a file, and return the number of calls so far."""
    with (folder / f"{name}.calls").open("ab") as file:
        file.write(b".")
        return file.tell()


def square(folder: Path, number: int) -> dict[str, Any]:
    count_call(folder, str(number))
    return {"square": number**2, "directory": str(Path.cwd())}


def raise_value_error() -> None:
    raise ValueError("first line\nsecond line")


def raise_input_error() -> None:
    raise InputError("a problem", "a remedy")


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave_python() -> None:
    os._exit(7)


def wait_for_stop(ready: Path) -> None:
    with StopRequest() as stop:
        ready.touch()
        while stop.signal is None:
            time.sleep(0.01)
    raise JobStopped("stopped at step 7", stop.signal)


def exit_on_stop(ready: Path) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    ready.touch()
    time.sleep(600)


def find_folder_in_use(folder: Path, times: int) -> dict[str, Any]:
    calls = count_call(folder, "in-use")
    if calls <= times:
        raise FolderInUse("the folder is in use", "wait")
    return {"calls": calls}


def thread_count() -> dict[str, Any]:
    import torch

    return {"threads": torch.get_num_threads()}
