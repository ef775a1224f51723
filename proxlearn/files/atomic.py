"""Files that are whole or absent: a temporary name, synced, renamed, the folder synced."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxlearn.errors import SAME_COMMAND, RunError

CONTINUES_FROM_CHECKPOINT = "goes on from the newest checkpoint"
TEMPORARY_NAME = re.compile(r"\.proxlearn-.+\.\d+\.tmp")
OLD_TEMPORARY_NAME = re.compile(
    r"\.((config|sweep)\.yaml|(status|model|selection|mlflow)\.json|(accuracy|confusion|points)\.csv"
    r"|cloud-\d+\.safetensors)\.\d+\.tmp"
)
"""Names that version 0.1.0 gave its unfinished files."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``; a crash leaves the old file or the new one, never a part of one."""
    temporary = temporary_name(path)
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    except BaseException:
        # The disk may be full or gone: what failed first is what must be told.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def break_hard_links(path: Path) -> None:
    """Give a file that has further names (a backup of hard links) a copy of its own, before it is changed in place."""
    try:
        if os.stat(path, follow_symlinks=False).st_nlink > 1:
            write_atomically(path, path.read_bytes())
    except FileNotFoundError:
        return


def write_all(handle: int, content: bytes) -> None:
    """Write every byte: the system may take fewer at once, the last ones before a disk is full."""
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def temporary_name(path: Path) -> Path:
    """Beside ``path``, under a name that no other program gives its files: those that are left behind are deleted."""
    return path.with_name(f".proxlearn-{path.name}.{os.getpid()}.tmp")


def is_temporary(path: Path) -> bool:
    """Whether a file has a name that only unfinished files of proxlearn have."""
    return bool(TEMPORARY_NAME.fullmatch(path.name) or OLD_TEMPORARY_NAME.fullmatch(path.name))


def remove_temporaries(folder: Path) -> None:
    """Delete what a killed process was writing; files of other programs stay."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def disk_errors_as_run_error(folder: Path, then: str = f"{SAME_COMMAND} {CONTINUES_FROM_CHECKPOINT}") -> Iterator[None]:
    """A full disk, a removed or a read-only folder, in one line, with what happens ``then``."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write to the run folder {folder}: {error.strerror or error}",
            f"put that right, and {then}",
        ) from error
