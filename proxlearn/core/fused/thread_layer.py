"""Numba's threads: one pool with torch's, and one thread only in a process that was forked from a pool's owner."""

from __future__ import annotations

import ctypes
import os
import sys

import numba
import torch
from numba.np.ufunc import parallel

from proxlearn.core.thread_limit import Fork, usable_threads

# OpenMP is what torch uses: one pool of threads for both, instead of two that wait for each other. Where Numba cannot
# load it (macOS without libomp), another layer serves.
numba.config.THREADING_LAYER = "default"  # type: ignore[attr-defined]
numba.config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]  # type: ignore[attr-defined]


def set_threads(threads: int) -> None:
    """Let the passes run on so many threads, without changing the number that torch's products use."""
    threads = usable_threads(threads)
    # Launching Numba's threads sets the number for all of OpenMP, torch's products included: put that back.
    of_torch = torch.get_num_threads()
    # Of all that there are: a step made earlier in this process may have asked for fewer.
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    torch.set_num_threads(usable_threads(of_torch))


def _use_one_thread() -> None:
    """In a forked child: the threads of GNU OpenMP are gone, and a loop over several would wait for them for ever.

    Numba ends such a child by a signal at its first parallel loop, and a ``multiprocessing.Pool`` then waits for its
    answer for ever. A loop on one thread needs no other one, so the child is registered with Numba's layer as a
    process that starts anew, with one thread for it and for torch.
    """
    if parallel._threading_layer != "omp":
        return
    omppool = sys.modules["numba.np.ufunc.omppool"]
    if omppool.openmp_vendor != "GNU":
        return
    Fork.happened = True
    ctypes.CFUNCTYPE(None, ctypes.c_int)(omppool.launch_threads)(1)
    numba.set_num_threads(1)
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)
