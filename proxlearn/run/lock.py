"""One writer to a run folder: a lock that the system lets go when its process dies, however it dies.

Where the file system has no locks, a file that one process can create takes its place (owner_file.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from proxlearn.errors import InputError, RunError
from proxlearn.files.atomic import write_all
from proxlearn.run import owner_file
from proxlearn.run.owner_file import OwnerFile, parse_owner, signature

LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""What a file system without locks answers."""

LOCK_ATTEMPTS = 3
"""Tries a few milliseconds apart: whoever only looks whether a folder is in use holds its lock for an instant."""


class FolderInUse(InputError):
    """Another process is at work in the folder."""


class FolderLost(RunError):
    """The folder is no longer this process's: another one may be at work under its name."""


def is_locked(folder: Path) -> bool | None:
    """Whether a process holds the lock of ``folder``; None where the file system cannot tell."""
    try:
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return owner_file.is_held(folder)
    finally:
        os.close(handle)
    return False


class FolderLock:
    """``with FolderLock(folder) as lock:``; names its process in the file, for whoever comes second."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / ".lock"
        self._handle = -1
        self._owner: OwnerFile | None = None
        self.left_by: str | None = None
        """A process that held the lock and died."""

    def __enter__(self) -> FolderLock:
        while True:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                self._take()
                # The holder removes the file as it leaves: one that was opened before that locks nobody out.
                if self._is_current():
                    self.left_by = self._owner.left_by if self._owner else self._holder()
                    self._sign()
                    return self
            except BaseException:
                self._close()
                raise
            self._close()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            if self._is_current():
                self._path.unlink()
        self._close()

    def require_current(self) -> None:
        """Raise FolderLost where the lock is no longer the one at the folder's path."""
        if not self._is_current():
            problem = f"{self._folder} was moved or its lock removed"
            raise FolderLost(problem, "nothing more is written there; resume the run where it is now")

    def _close(self) -> None:
        if self._owner is not None:
            self._owner.release()
            self._owner = None
        os.close(self._handle)

    def _take(self) -> None:
        for last in (*(False,) * (LOCK_ATTEMPTS - 1), True):
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if last:
                    holder = self._holder() or "another process"
                    raise FolderInUse(
                        f"{self._folder} is in use by {holder}", "wait for it, or stop it first"
                    ) from error
                time.sleep(0.005)
            except OSError as error:
                if error.errno not in LOCKS_UNSUPPORTED:
                    raise
                self._take_owner_file()
                return

    def _take_owner_file(self) -> None:
        owner = OwnerFile(self._folder)
        holder = owner.take()
        if holder is not None:
            problem = f"{self._folder} is in use by {holder}, as far as can be told where file locks do not exist"
            raise FolderInUse(problem, f"wait for it; if that process is gone, delete {owner.path}")
        self._owner = owner

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._handle), os.stat(self._path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _holder(self) -> str | None:
        """Who signed the file, as words."""
        owner = parse_owner(os.pread(self._handle, 1000, 0))
        return None if owner is None else str(owner)

    def _sign(self) -> None:
        os.ftruncate(self._handle, 0)
        os.lseek(self._handle, 0, os.SEEK_SET)
        write_all(self._handle, signature())
