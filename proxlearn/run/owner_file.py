"""A substitute for file locks where they are not available: a file that only one process can create.

The operating system does not remove this file when its process ends. Therefore, the file names its process and host,
and its time stamp is renewed while the process runs. Another process on the same host replaces the file if its owner
has ended; otherwise it reports the owner.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from proxlearn.files.atomic import write_all
from proxlearn.portability import NO_WAIT, PLAIN, process_exists

NAME = ".lock-owner"
RENEW_SECONDS = 10.0
SILENT_SECONDS = 120.0
"""Age of its time stamp, in seconds, above which an owner is considered gone. A time stamp that lies further than this
in the future counts as old.
"""
MOST_BYTES = 1000
"""Maximum length of a signature."""


@dataclass(frozen=True)
class Owner:
    """The process that a lock file names; its values are not trusted, because any program may have written the file."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        host, since = ascii(self.host)[1:60].rstrip("'"), ascii(self.since)[1:40].rstrip("'")
        return f"process {self.pid} on {host} since {since}"

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended; only a process on this host can be looked up."""
        return self.host == platform.node() and not process_exists(self.pid)


def signature() -> bytes:
    """Return the bytes that this process writes into a lock file."""
    values = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    return json.dumps(values).encode()


def parse_owner(content: bytes) -> Owner | None:
    """Return the owner that the content of a lock file names, or None if it names none."""
    try:
        values = json.loads(content)
        return Owner(int(values["pid"]), str(values["host"]), str(values["since"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def is_held(folder: Path) -> bool | None:
    """Return whether the owner file is recent and its process may be alive, or None if there is no owner file."""
    path = folder / NAME
    try:
        age = time.time() - path.stat(follow_symlinks=False).st_mtime
        owner = parse_owner(_content(path))
    except OSError:
        return None
    return abs(age) < SILENT_SECONDS and not (owner is not None and owner.is_gone)


class OwnerFile:
    """The owner file of one folder: ``take`` creates it or returns its owner, ``release`` removes it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.left_by: str | None = None
        self._released = threading.Event()
        self._handle = -1

    def take(self) -> str | None:
        """Create the file and return None, or return a description of the current owner."""
        for _ in range(3):
            try:
                self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o666)
            except FileExistsError:
                try:
                    content = _content(self.path)
                except FileNotFoundError:
                    continue
                owner = parse_owner(content)
                if owner is None or not owner.is_gone:
                    return str(owner or "an unknown process")
                self._remove(content)
                self.left_by = str(owner)
                continue
            write_all(self._handle, signature())
            os.fsync(self._handle)
            threading.Thread(target=self._renew, daemon=True, name="lock-owner").start()
            return None
        return "another process"

    def release(self) -> None:
        """Remove the file, unless another process has replaced it."""
        self._released.set()
        try:
            own = os.path.samestat(os.fstat(self._handle), self.path.stat(follow_symlinks=False))
        except OSError:
            own = False
        # Windows cannot remove an open file. Elsewhere, the file is removed first, because its inode can be reused once
        # it is closed.
        if os.name == "nt":
            os.close(self._handle)
        with contextlib.suppress(OSError):
            if own:
                self.path.unlink()
        if os.name != "nt":
            os.close(self._handle)

    def _remove(self, content: bytes) -> None:
        """Remove the file of an owner that has ended, if it still has this content.

        The file is renamed first, because two processes may try to remove it at the same time.
        """
        aside = self.path.with_name(f"{NAME}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            if _content(aside) != content:
                # Another process removed the old file and created its own in between, so the new file is put back.
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self.path)
            aside.unlink()

    def _renew(self) -> None:
        # Windows sets the time only by path, but no other process can replace the file there while it is open.
        place = self._handle if os.utime in os.supports_fd else self.path
        while not self._released.wait(RENEW_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(place)


def _content(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | PLAIN | NO_WAIT)
    try:
        return os.read(handle, MOST_BYTES)
    finally:
        os.close(handle)
