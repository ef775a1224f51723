"""Atomic writing: a file is written under a temporary name, synced and renamed, and its folder is synced."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxlearn.errors import SAME_COMMAND, RunError
from proxlearn.portability import PLAIN, process_exists

CONTINUES_FROM_CHECKPOINT = "continues from the newest checkpoint"
TEMPORARY_NAME = re.compile(r"\.proxlearn-.+\.(\d+)\.tmp")
OLD_TEMPORARY_NAME = re.compile(
    r"\.((config|sweep)\.yaml|(status|model|selection|mlflow)\.json|(accuracy|confusion|points)\.csv"
    r"|cloud-\d+\.safetensors)\.\d+\.tmp"
)
"""Pattern of the names of unfinished files that version 0.1.0 wrote."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of ``path``; after a crash, the file has the complete old or the complete new content."""
    temporary = temporary_name(path)
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | PLAIN, 0o666)
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    except BaseException:
        # Removing the file can also fail, for example on a disconnected disk; the first error is the one to report.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def break_hard_links(path: Path) -> None:
    """Replace a file that has other hard links, such as a backup, with a copy that can be changed independently."""
    try:
        if os.stat(path, follow_symlinks=False).st_nlink > 1:
            write_atomically(path, path.read_bytes())
    except FileNotFoundError:
        return


def write_all(handle: int, content: bytes) -> None:
    """Write all of ``content``; a single system call may write only a part, for example if the disk is almost full."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(handle, remaining) :]


def sync_folder(folder: Path) -> None:
    """Sync ``folder`` to disk, so that a rename in it is durable."""
    if os.name == "nt":
        # Windows cannot open a folder as a file; its file system records a rename in a journal.
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def temporary_name(path: Path) -> Path:
    """Return the path of an unfinished file next to ``path``; the name marks it as a file that proxlearn may delete."""
    return path.with_name(f".proxlearn-{path.name}.{os.getpid()}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether a file has the name of an unfinished file of proxlearn."""
    return bool(TEMPORARY_NAME.fullmatch(path.name) or OLD_TEMPORARY_NAME.fullmatch(path.name))


def remove_temporaries(folder: Path) -> None:
    """Delete the unfinished files that killed processes of proxlearn have left in a folder.

    The unfinished files of running processes are not deleted, because these processes will rename them.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path) and path.is_file() and not path.is_symlink() and not _is_being_written(path):
            path.unlink(missing_ok=True)


def _is_being_written(path: Path) -> bool:
    match = TEMPORARY_NAME.fullmatch(path.name)
    pid = int(match[1]) if match else os.getpid()
    return pid != os.getpid() and process_exists(pid)


@contextlib.contextmanager
def disk_errors_as_run_error(folder: Path, then: str = f"{SAME_COMMAND} {CONTINUES_FROM_CHECKPOINT}") -> Iterator[None]:
    """Convert an OSError in the block, such as that of a full disk, to a RunError whose remedy ends with ``then``."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write to the run folder {folder}: {error.strerror or error}",
            f"fix the cause, and {then}",
        ) from error
