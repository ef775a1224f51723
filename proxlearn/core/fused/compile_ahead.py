"""A second process that compiles the fixed point while this process compiles the drift.

Numba compiles one function at a time, on one core. The first step needs the drift and then the fixed point, and each
takes seconds to compile. The second process stores the code of the fixed point in the cache, from which this process
loads it.
"""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
from typing import Any

import numba
import numpy as np

from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.fused import fixed_point
from proxlearn.core.fused.absorbed_kernel import dense_kernel
from proxlearn.core.fused.code_cache import PassCache
from proxlearn.core.fused.neighbour_list import largest_displacement
from proxlearn.core.fused.screening import ranges

PATIENCE = 60.0
"""Seconds after which a second process that has not finished is abandoned; this process then compiles the code itself.
"""

_running: list[subprocess.Popen[bytes]] = []
_decided: set[np.dtype] = set()
"""Precisions for which ``start`` has already searched the cache; a selection calls ``start`` once per candidate."""


def _arguments(dtype: np.dtype) -> tuple[Any, ...]:
    """Return the arguments of a small fixed point; their types are those of every dense fixed point in ``dtype``."""
    points = np.arange(32.0).reshape(16, 2).astype(dtype)
    kernel = dense_kernel(points, points, 1.0, np.empty((16, 16), dtype), 1.0)
    return fixed_point.arguments(kernel, np.zeros(16), np.zeros(16), 1.0, np.zeros(16), 0.1, 2, "paper")


def compile_fixed_point(dtype: np.dtype) -> None:
    """Compile all passes that a step with a dense kernel needs after its drift, by calling each of them once."""
    fixed_point.DENSE(*_arguments(dtype))
    points, numbers = np.ones((16, 2), dtype), np.ones(16, dtype)
    largest_displacement(points, points)
    ranges(numbers, numbers, np.ones(16), 1.0)


def start(dtype: np.dtype) -> None:
    """Start the second process, unless the code is in the cache or there is no cache to share."""
    cache = getattr(fixed_point.DENSE, "_cache", None)
    # With NUMBA_DISABLE_JIT, there is no compiled code.
    if _running or dtype in _decided or not isinstance(cache, PassCache) or not sys.executable:
        return
    _decided.add(dtype)
    if cache.cache_path is None:
        return
    types = tuple(numba.typeof(value) for value in _arguments(dtype))  # type: ignore[no-untyped-call]
    if cache.is_stored(types, fixed_point.DENSE.targetctx):
        return
    statement = (
        "import numpy; from proxlearn.core.fused.compile_ahead import compile_fixed_point; "
        f"compile_fixed_point(numpy.dtype({dtype.name!r}))"
    )
    # The working directory is not in the path, because a user's file may have the same name as a module.
    command = [sys.executable, "-P", "-c", statement]
    # If the second process cannot be started, this process compiles everything.
    with contextlib.suppress(OSError):
        null = subprocess.DEVNULL
        _running.append(subprocess.Popen(command, stdin=null, stdout=null, stderr=null))
        atexit.register(stop)


def wait() -> None:
    """Wait until the second process has ended; the compiled code is then in the cache, unless the process failed."""
    if not _running:
        return
    COMPILE_TIME.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        _running[0].wait(PATIENCE)
    COMPILE_TIME.end()
    stop()


def stop() -> None:
    """End the second process."""
    while _running:
        process = _running.pop()
        process.kill()
        process.wait()
