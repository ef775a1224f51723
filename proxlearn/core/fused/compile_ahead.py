"""A second process that compiles some passes of the first step while this process compiles the others.

Numba compiles one function at a time, on one core, and the passes of a first step take 8 to 20 seconds. This process
compiles the noise and the drift, and the second process compiles the fixed point. The drift of tanh neurons on raw
features takes longer to compile than the fixed point; with this drift, the second process also compiles the noise. Both
processes use the same cache (code_cache.py), whose locks ensure that each pass is compiled once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused import fixed_point, one_step_list
from proxlearn.core.fused.absorbed_kernel import AllPairsKernel, ShortKernel, SparseKernel, dense_kernel, sparse_kernel
from proxlearn.core.fused.code_cache import PassCache
from proxlearn.core.fused.neighbour_list import NeighbourList, largest_displacement
from proxlearn.core.fused.one_step_list import list_between
from proxlearn.core.fused.random_numbers import fill_normal, fill_uniform
from proxlearn.core.fused.screening import ranges
from proxlearn.core.fused.tanh_saturated import SaturatedTanhDrift
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples

_running: list[subprocess.Popen[bytes]] = []
_decided: set[tuple[np.dtype, str]] = set()
"""Pairs (precision, fixed point) for which ``start`` has searched the cache; it searches once per pair."""


def _points(dtype: np.dtype) -> np.ndarray:
    points: np.ndarray = np.arange(32.0).reshape(16, 2).astype(dtype)
    return points


def _dense(dtype: np.dtype) -> AllPairsKernel:
    points = _points(dtype)
    return dense_kernel(points, points, 1.0, np.empty((16, 16), dtype), 1.0)


def _short(dtype: np.dtype) -> SparseKernel | ShortKernel:
    empty = NeighbourList(np.zeros(17, np.int64), np.empty(0, np.int32), 1.0)
    return sparse_kernel(_points(dtype), _points(dtype), 1.0, empty, 1.0)


FIXED_POINTS: dict[str, tuple[Any, Callable[[np.dtype], Any]]] = {
    "dense": (fixed_point.DENSE, _dense),
    "short": (fixed_point.SHORT, _short),
}
"""Fixed points that a first step may need, each with a function that returns a small kernel in a given precision."""


def compile_fixed_point(dtype: np.dtype, kind: str) -> None:
    """Compile the passes of a step after its drift, by calling each of them with small arguments."""
    points, numbers = _points(dtype), np.ones(16, dtype)
    largest_displacement(points, points)
    ranges(numbers, numbers, np.ones(16), 1.0)
    if kind == "short":
        list_between(points, points, 1.0, 16)
    function, kernel = FIXED_POINTS[kind]
    function(*_arguments(kernel(dtype)))


def _arguments(kernel: Any) -> tuple[Any, ...]:
    """Return small arguments of a fixed point; their types are the same for all clouds of one precision."""
    return fixed_point.arguments(kernel, np.zeros(16), np.zeros(16), 1.0, np.zeros(16), 0.1, 2, "paper")


def compile_forward(dtype: np.dtype) -> None:
    """Compile the forward pass of the tanh drift for raw features, by calling it with small arguments."""
    X = torch.from_numpy(_points(dtype))
    risk = Risk.from_samples(Perceptron(), Samples(X, torch.ones(16, dtype=X.dtype), torch.ones(16, dtype=torch.int64)))
    drift = SaturatedTanhDrift(risk, Hyper(beta=1.0, h=1.0, epsilon=1.0), 16, 1)
    drift.forward(X.new_zeros(16, 4), np.zeros(16, dtype))


def compile_in_second_process(name: str, kind: str, noise: int) -> None:
    """Compile passes in the precision ``name``; the second process runs this function.

    ``noise`` is the number of random numbers of a step, or 0 if the other process compiles the noise.
    """
    # Compiling creates millions of objects that stay alive; the search for garbage would take a tenth of the time.
    gc.disable()
    dtype = np.dtype(name)
    if noise:
        fill_normal((0, 0), np.empty(noise, dtype))
        fill_uniform((0, 0), np.empty(1, dtype))
    compile_fixed_point(dtype, kind)


def start(dtype: np.dtype, N: int, p: int, saturates: bool) -> None:
    """Start the second process for N particles with p coordinates, unless the cache contains the fixed point.

    ``saturates`` is true if the drift is that of tanh neurons on raw features; this process then compiles the forward
    pass of the drift at once. Without a cache, no process is started.
    """
    kind = "short" if N <= one_step_list.MOST_ROWS and p <= one_step_list.MOST_COORDINATES else "dense"
    cache = getattr(FIXED_POINTS[kind][0], "_cache", None)
    # With NUMBA_DISABLE_JIT, there is no compiled code.
    if _running or (dtype, kind) in _decided or not isinstance(cache, PassCache) or not sys.executable:
        return
    _decided.add((dtype, kind))
    if cache.cache_path is None or is_stored(dtype, kind):
        return
    statement = (
        "from proxlearn.core.fused.compile_ahead import compile_in_second_process; "
        f"compile_in_second_process({dtype.name!r}, {kind!r}, {saturates and N * p})"
    )
    # The working directory is not in the path, because a user's file may have the same name as a module.
    command = [sys.executable, "-P", "-c", statement]
    # If the second process cannot be started, this process compiles everything.
    with contextlib.suppress(OSError):
        null = subprocess.DEVNULL
        _running.append(subprocess.Popen(command, stdin=null, stdout=null, stderr=null))
        atexit.register(stop)
        if saturates:
            compile_forward(dtype)


def is_stored(dtype: np.dtype, kind: str) -> bool:
    """Return whether the cache contains the code of a fixed point."""
    function, kernel = FIXED_POINTS[kind]
    types = tuple(numba.typeof(value) for value in _arguments(kernel(dtype)))  # type: ignore[no-untyped-call]
    stored: bool = function._cache.is_stored(types, function.targetctx)
    return stored


def stop() -> None:
    """End the second process."""
    while _running:
        process = _running.pop()
        process.kill()
        process.wait()
