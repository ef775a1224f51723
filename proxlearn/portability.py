"""Differences between operating systems: flags for os.open, the user's ID, the size of the memory.

Features that an operating system may lack are looked up here, so that the package can be imported without POSIX.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys

PLAIN: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""Flags for every os.open: a symbolic link is refused, and Windows does not translate line ends."""
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
"""Flag for opening a file that may be a pipe: without it, open waits until a process writes to the pipe."""


def user_id() -> int:
    """Return the user ID of this process, comparable with ``st_uid`` of a file; on Windows both are 0."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def physical_memory() -> int:
    """Return the size of this machine's memory in bytes."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    # windll is looked up by name, because only the ctypes of Windows has it.
    getattr(ctypes, "windll").kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # noqa: B009
    return int(status.total)


def peak_memory() -> float:
    """Return the peak memory of this process in bytes; nan on Windows."""
    try:
        import resource
    except ImportError:
        return math.nan
    # ru_maxrss is in KiB, on macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


class _MemoryStatus(ctypes.Structure):
    """The structure MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 6),
    )
