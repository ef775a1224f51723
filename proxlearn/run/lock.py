"""A lock that allows one writer per run folder, even on a system without file locks.

The lock on the file `.lock` is taken with `filelock` on a descriptor that this module opens (flock on POSIX, LockFileEx
on Windows), so that the file can also name its holder. Processes of version 0.1.0 take the same flock on the same file
and are therefore excluded as well. On a file system without locks, the file `.lock-owner` is used instead, which only
one process can create.

The operating system does not remove `.lock-owner` when its owner, which is the process that created the file, ends.
Therefore, the file names the owner and the owner's host, and a running owner renews the time stamp of the file. Another
process on the same host replaces the file if the owner has ended; otherwise, that process reports the owner.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from filelock import lock_descriptor

from proxlearn.errors import InputError, RunError
from proxlearn.files.atomic import write_all
from proxlearn.portability import NO_WAIT, PLAIN, process_exists

NAME = ".lock-owner"
RENEW_SECONDS = 10.0
SILENT_SECONDS = 120.0
"""Age of an owner file's time stamp, in seconds, above which the owner is considered gone. A time stamp that is more
than this time in the future also counts as old.
"""
MOST_BYTES = 1000
"""Maximum number of bytes that are read from a lock file."""


@dataclass(frozen=True)
class Owner:
    """The process that a lock file names; the values are not trusted, because any program may have written the file."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        host, since = ascii(self.host)[1:60].rstrip("'"), ascii(self.since)[1:40].rstrip("'")
        return f"process {self.pid} on {host} since {since}"

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended; for a process on another host, this is unknown and the value is false."""
        return self.host == platform.node() and not process_exists(self.pid)


def signature() -> bytes:
    """Return the content of a lock file of this process: its process ID, its host and the current time."""
    values = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    return json.dumps(values).encode()


def parse_owner(content: bytes) -> Owner | None:
    """Return the owner that the content of a lock file names, or None if the content is not valid."""
    try:
        values = json.loads(content)
        return Owner(int(values["pid"]), str(values["host"]), str(values["since"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def is_held(folder: Path) -> bool | None:
    """Return whether the owner file is recent and the owner may be alive, or None if the file cannot be read."""
    path = folder / NAME
    try:
        age = time.time() - path.stat(follow_symlinks=False).st_mtime
        owner = parse_owner(_content(path))
    except OSError:
        return None
    return abs(age) < SILENT_SECONDS and not (owner is not None and owner.is_gone)


class OwnerFile:
    """The owner file of one folder: ``take`` creates it or returns its owner, and ``release`` removes it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.left_by: str | None = None
        self._released = threading.Event()
        self._handle = -1

    def take(self) -> str | None:
        """Create the file and return None; if the file already has an owner, return a description of that owner."""
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
        """Remove the file of an owner that has ended, if the file still contains ``content``.

        The file is renamed first, because two processes may try to remove it at the same time.
        """
        aside = self.path.with_name(f"{NAME}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            if _content(aside) != content:
                # In between, another process removed the old file and created its own, which is put back.
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


LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""Error numbers of a file system without locks."""

LOCK_ATTEMPTS, RETRY_SECONDS = 3, 0.005
"""Number of attempts to take the lock, and the seconds between them. Several attempts are needed because `is_locked` in
another process holds the lock for an instant.
"""


class FolderInUse(InputError):
    """Raised if another process is using a folder."""


class FolderLost(RunError):
    """Raised if this process has lost the lock of a folder, because the folder was moved or its lock was removed."""


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
        return is_held(folder)
    finally:
        os.close(handle)


class FolderLock:
    """A context manager that locks a folder; the lock file names the process that has locked the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / ".lock"
        self._handle = -1
        self._owner: OwnerFile | None = None
        self.left_by: str | None = None
        """Description of an earlier process that ended without releasing the lock; None if the lock was released."""

    def __enter__(self) -> FolderLock:
        while True:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | PLAIN, 0o666)
            try:
                self._take()
                # A holder removes the file when it ends, so a lock on a file that was opened earlier would not exclude
                # other processes.
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
        """Raise FolderLost if the lock file in the folder is not the file that this process has locked."""
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
            raise FolderInUse(f"{self._folder} is in use by {holder}", "wait until that process ends, or stop it")

    def _take_owner_file(self) -> None:
        owner = OwnerFile(self._folder)
        holder = owner.take()
        if holder is not None:
            problem = f"{self._folder} seems to be in use by {holder} (this file system has no file locks)"
            raise FolderInUse(problem, f"wait until that process ends, or delete {owner.path} if the process is gone")
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
    """Open a lock file to test its lock; use write access if possible, because NFS requires it for exclusive locks."""
    try:
        return os.open(path, os.O_RDWR | PLAIN | NO_WAIT)
    except FileNotFoundError:
        raise
    except OSError:
        # The folder belongs to another user or is on a read-only medium.
        return os.open(path, os.O_RDONLY | PLAIN | NO_WAIT)
