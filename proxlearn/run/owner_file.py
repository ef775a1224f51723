"""One writer to a folder where file locks do not exist: a file that only one process can create.

The system does not remove it when its process dies. So it names its process and host, and its time stamp is renewed
while the process lives: a later process takes it over from a dead one on the same host, or says who holds it.
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

NAME = ".lock-owner"
RENEW_SECONDS = 10.0
SILENT_SECONDS = 120.0
"""An owner whose time stamp is older than this, or lies further in the future, gives no sign of life."""


@dataclass(frozen=True)
class Owner:
    """Who signed a lock file; anybody may have written it, so nothing is taken on trust."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        host, since = ascii(self.host)[1:60].rstrip("'"), ascii(self.since)[1:40].rstrip("'")
        return f"process {self.pid} on {host} since {since}"

    @property
    def is_gone(self) -> bool:
        """Whether it certainly is: only a process of this host can be asked about."""
        if self.host != platform.node() or self.pid <= 0:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass
        return False


def signature() -> bytes:
    """This process, as it signs a lock file."""
    signed = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    return json.dumps(signed).encode()


def parse_owner(content: bytes) -> Owner | None:
    try:
        signed = json.loads(content)
        return Owner(int(signed["pid"]), str(signed["host"]), str(signed["since"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def is_held(folder: Path) -> bool | None:
    """Whether a folder's owner gives a sign of life; None where there is no such file."""
    path = folder / NAME
    try:
        age = time.time() - path.stat(follow_symlinks=False).st_mtime
        owner = parse_owner(_content(path))
    except OSError:
        return None
    return abs(age) < SILENT_SECONDS and not (owner is not None and owner.is_gone)


class OwnerFile:
    """``take`` the folder, or learn who has it; ``release`` it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.left_by: str | None = None
        self._released = threading.Event()
        self._handle = -1

    def take(self) -> str | None:
        """None, if the folder is ours now; otherwise the owner, in words."""
        for _ in range(3):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._handle = os.open(self.path, flags, 0o666)
            except FileExistsError:
                try:
                    content = _content(self.path)
                except FileNotFoundError:
                    continue
                owner = parse_owner(content)
                if owner is None or not owner.is_gone:
                    return str(owner or "a process that did not sign")
                self._remove(content)
                self.left_by = str(owner)
                continue
            write_all(self._handle, signature())
            os.fsync(self._handle)
            threading.Thread(target=self._renew, daemon=True, name="lock-owner").start()
            return None
        return "another process"

    def release(self) -> None:
        self._released.set()
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._handle), self.path.stat(follow_symlinks=False)):
                self.path.unlink()
        os.close(self._handle)

    def _remove(self, content: bytes) -> None:
        """Remove a dead owner's file, and no other: it is renamed first, because two processes may try at once."""
        aside = self.path.with_name(f"{NAME}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            if _content(aside) != content:
                # Another process has removed that file and made its own in between: it gets its own back.
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self.path)
            aside.unlink()

    def _renew(self) -> None:
        while not self._released.wait(RENEW_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._handle)


def _content(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, 1000)
    finally:
        os.close(handle)
