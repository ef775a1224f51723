"""Functions that differ between operating systems: flags for os.open, the user ID, processes, threads and memory.

Features that an operating system may lack are looked up here, so that the package can be imported without POSIX.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PLAIN: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""Flags for every os.open: symbolic links are rejected, and Windows does not translate line endings."""
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
"""Flag for opening a file that may be a pipe: without the flag, os.open waits until a process writes to the pipe."""


def user_id() -> int:
    """Return the user ID of this process, comparable with ``st_uid`` of a file; on Windows, both are 0."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def process_exists(pid: int) -> bool:
    """Return False if a process on this machine has certainly ended, and True if it may still be running."""
    # On Windows, signal 0 is Ctrl-C and would stop the process.
    if os.name == "nt" or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def physical_memory() -> int:
    """Return the size of this machine's memory in bytes."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    # windll is looked up by name, because ctypes has it only on Windows.
    getattr(ctypes, "windll").kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # noqa: B009
    return int(status.total)


def available_memory(root: Path = Path("/")) -> int:
    """Return the number of bytes that this process can still allocate, within the limit of its cgroup.

    On Linux, this is MemAvailable, or the remainder of a cgroup's limit if that is less; on Windows, it is the free
    physical memory; elsewhere, it is the total memory. ``root`` is the folder that contains proc and sys.
    """
    if not hasattr(os, "sysconf"):
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        getattr(ctypes, "windll").kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # noqa: B009
        return int(status.available)
    available = _keyed_number(root / "proc/meminfo", "MemAvailable:")
    free = physical_memory() if available is None else 1024 * available
    return max(0, min([free, *_cgroup_remainders(root)]))


def _cgroup_remainders(root: Path) -> list[int]:
    """Return the remaining memory within the limits of this process's cgroup and of every cgroup that contains it."""
    remainders = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version_1 = bool(controllers)
        top = root / "sys/fs/cgroup" / ("memory" if version_1 else "")
        names = ("limit_in_bytes", "usage_in_bytes", "total_inactive_file") if version_1 else None
        limit_name, usage_name, reclaimable = names or ("max", "current", "inactive_file")
        # In a container, its own cgroup is the root, although the line gives another path; missing folders are skipped.
        group = top / path.lstrip("/")
        for folder in [group, *group.parents]:
            limit, usage = (_number(folder / f"memory.{name}") for name in (limit_name, usage_name))
            if limit is not None and usage is not None:
                # The file cache counts as usage, but the system can reclaim it.
                cache = _keyed_number(folder / "memory.stat", reclaimable) or 0
                remainders.append(limit - max(0, usage - cache))
            if folder == top:
                break
    return remainders


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """Return the number in a one-line file, or None if the file is missing or contains a word such as ``max``."""
    first = (_lines(path) or [""])[0].strip()
    return int(first) if first.isdecimal() else None


def _keyed_number(path: Path, key: str) -> int | None:
    """Return the number after ``key`` at the start of a line of the file, or None if the file has no such line."""
    words = next((words for line in _lines(path) if (words := line.split())[:1] == [key]), [])
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None


def return_freed_arrays(least_bytes: int = 2**18) -> None:
    """Make the C library return the memory of freed arrays of at least ``least_bytes`` to the system immediately.

    By default, glibc raises this limit to as much as 32 MB while a program runs. Freed arrays below the limit leave
    gaps that may be too small for other arrays. On systems without glibc, this function has no effect.
    """
    mallopt = _c_function("mallopt")
    if mallopt is not None:
        mallopt(-3, least_bytes)  # M_MMAP_THRESHOLD


def return_freed_memory() -> None:
    """Return the memory of all freed arrays, including small ones, to the system; this has an effect on Linux only."""
    malloc_trim = _c_function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _c_function(name: str) -> Any:
    """Return the function ``name`` of glibc, or None if the C library of this system does not have it."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def peak_memory() -> float:
    """Return the peak memory of this process in bytes, or NaN on Windows."""
    try:
        import resource
    except ImportError:
        return math.nan
    # ru_maxrss is in KiB, but in bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


class _MemoryStatus(ctypes.Structure):
    """The structure MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


class Fork:
    """The flag ``happened``: whether this process was forked from a process that had started threads of GNU OpenMP.

    The flag is set by core/fused/thread_layer.py.
    """

    happened = False


def usable_threads(threads: int) -> int:
    """Return ``threads``, or 1 in a forked process, where a multithreaded matrix product would hang."""
    return 1 if Fork.happened else threads


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread within the block, for operations whose rounding depends on the number of threads."""
    import torch

    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
