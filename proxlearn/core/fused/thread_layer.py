"""The threads of compiled passes, and the blocks of rows among which they divide a cloud.

A pass runs in parallel over the blocks and adds their contributions in order. The number of threads affects only which
thread computes a block and never the result, so a run has the same bits with any number of threads.
"""

from __future__ import annotations

import ctypes
import os
import sys

import numba
import torch
from numba.np.ufunc import parallel

from proxlearn.portability import Fork, usable_threads

MOST_BLOCKS = 32
"""Maximum number of blocks, and therefore of threads that a pass can use."""
LEAST_ROWS = 8
"""Minimum number of rows of a block."""


def row_blocks(N: int) -> int:
    """Return the number of blocks for N rows, which is a power of two, so that 2, 4, 8 ... threads have equal work."""
    blocks = 1
    while blocks < MOST_BLOCKS and 2 * blocks * LEAST_ROWS <= N:
        blocks *= 2
    return blocks


# torch uses OpenMP; sharing its pool avoids two pools that wait for each other. If Numba cannot load OpenMP (macOS
# without libomp), it uses another layer.
numba.config.THREADING_LAYER = "default"  # type: ignore[attr-defined]
numba.config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]  # type: ignore[attr-defined]


def set_threads(threads: int) -> None:
    """Set the number of threads of the passes without changing the number that torch uses for matrix products."""
    threads = usable_threads(threads)
    # Launching Numba's threads sets the number for all of OpenMP, including torch's products, so it is restored below.
    torch_threads = torch.get_num_threads()
    # The limit is the number of available threads, not the current number, which an earlier step may have reduced.
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    torch.set_num_threads(usable_threads(torch_threads))


def _use_one_thread() -> None:
    """Use a single thread in a forked child, where the threads of GNU OpenMP do not exist.

    A parallel loop over several threads would hang. Numba therefore kills such a child with a signal at its first
    parallel loop, and a ``multiprocessing.Pool`` then waits for its result forever. A loop on one thread works, so the
    child is registered with Numba's layer as a new process, with one thread for Numba and for torch.
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
