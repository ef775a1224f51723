"""A lock that allows one writer per run folder; the system releases it when the process ends.

The lock on the file `.lock` is taken with `filelock` on a descriptor that this module opens (flock on POSIX, LockFileEx
on Windows), so that the file can also name its holder. Processes of version 0.1.0 take the same flock on the same file
and are therefore excluded as well. On a file system without locks, a file that only one process can create is used
instead (owner_file.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from types import TracebackType

from filelock import lock_descriptor

from proxlearn.errors import InputError, RunError
from proxlearn.files.atomic import write_all
from proxlearn.portability import NO_WAIT, PLAIN
from proxlearn.run import owner_file
from proxlearn.run.owner_file import MOST_BYTES, OwnerFile, parse_owner, signature

LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""Error numbers of a file system without locks."""

LOCK_ATTEMPTS, RETRY_SECONDS = 3, 0.005
"""Number of attempts to take the lock, because `is_locked` in another process holds it for an instant, and their
interval.
"""


class FolderInUse(InputError):
    """Raised if another process is using the folder."""


class FolderLost(RunError):
    """Raised if the folder no longer belongs to this process: it was moved, or its lock was removed."""


def is_locked(folder: Path) -> bool | None:
    """Return whether a process holds the lock of ``folder``, or None if that cannot be determined."""
    try:
        handle = _open_existing(folder / ".lock")
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        return not _try_lock(handle)
    except OSError:
        return owner_file.is_held(folder)
    finally:
        os.close(handle)


class FolderLock:
    """A context manager that holds the lock on a folder; the lock file names the process that holds it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / ".lock"
        self._handle = -1
        self._owner: OwnerFile | None = None
        self.left_by: str | None = None
        """The process that held the lock before and ended without releasing it."""

    def __enter__(self) -> FolderLock:
        while True:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | PLAIN, 0o666)
            try:
                self._take()
                # A holder removes the file when it ends, so a lock on a file opened before that would not exclude other
                # processes.
                if self._is_current():
                    self.left_by = self._owner.left_by if self._owner else self._holder()
                    self._sign()
                    return self
            except BaseException:
                self._close()
                raise
            self._close()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.name == "nt":
            self._remove_after_closing()
            return
        with contextlib.suppress(OSError):
            if self._is_current():
                self._path.unlink()
        self._close()

    def require_current(self) -> None:
        """Raise FolderLost if the lock file at the folder's path is no longer the one that this process holds."""
        if not self._is_current():
            problem = f"{self._folder} was moved, or its lock file was removed"
            raise FolderLost(problem, "resume the run from its current folder (this process has stopped writing)")

    def _close(self) -> None:
        if self._owner is not None:
            self._owner.release()
            self._owner = None
        os.close(self._handle)

    def _remove_after_closing(self) -> None:
        """Release the lock on Windows, where an open file cannot be removed.

        The file remains if another process has opened it; it is emptied first, so that it does not name a holder.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(self._handle, 0)
        self._close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _take(self) -> None:
        try:
            locked = _try_lock(self._handle)
        except OSError as error:
            if error.errno not in LOCKS_UNSUPPORTED:
                raise
            self._take_owner_file()
            return
        if not locked:
            holder = self._holder() or "another process"
            raise FolderInUse(f"{self._folder} is in use by {holder}", "wait until it ends, or stop it")

    def _take_owner_file(self) -> None:
        owner = OwnerFile(self._folder)
        holder = owner.take()
        if holder is not None:
            problem = f"{self._folder} seems to be in use by {holder} (file locks are not available here)"
            raise FolderInUse(problem, f"wait until it ends, or delete {owner.path} if that process is gone")
        self._owner = owner

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._handle), os.stat(self._path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _holder(self) -> str | None:
        """Return a description of the process that signed the file, or None if the file has no valid signature."""
        os.lseek(self._handle, 0, os.SEEK_SET)
        try:
            content = os.read(self._handle, MOST_BYTES)
        except PermissionError:
            # On Windows, another process has locked the first byte, which is the signature's opening brace.
            os.lseek(self._handle, 1, os.SEEK_SET)
            content = b"{" + os.read(self._handle, MOST_BYTES)
        owner = parse_owner(content)
        return None if owner is None else str(owner)

    def _sign(self) -> None:
        os.ftruncate(self._handle, 0)
        os.lseek(self._handle, 0, os.SEEK_SET)
        write_all(self._handle, signature())


def _try_lock(handle: int) -> bool:
    """Take the exclusive lock on an open file; return False if another process holds it."""
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            time.sleep(RETRY_SECONDS)
        if lock_descriptor(handle, blocking=False):
            return True
    return False


def _open_existing(path: Path) -> int:
    """Open a lock file to inspect its lock, for writing if possible, because NFS requires this for exclusive locks."""
    try:
        return os.open(path, os.O_RDWR | PLAIN | NO_WAIT)
    except FileNotFoundError:
        raise
    except OSError:
        # The folder belongs to another user, or is on a read-only medium.
        return os.open(path, os.O_RDONLY | PLAIN | NO_WAIT)
