"""The memory of the machine, the memory that a kernel needs, and the detection of failed allocations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from proxlearn.errors import RunError
from proxlearn.portability import physical_memory

KERNEL_COPIES = 4
"""Number of N x N matrices in memory: the costs, the kernel, and two temporary matrices of a Sinkhorn round."""
ALLOCATION_FAILURES = ("can't allocate memory", "out of memory")
"""torch's messages for a failed allocation, on the CPU (a plain RuntimeError) and on a GPU."""


def device_memory(device: str) -> int:
    """Return the total memory in bytes: of the GPU if ``device`` is cuda, otherwise of this machine."""
    if device == "cuda":
        import torch

        total: int = torch.cuda.mem_get_info()[1]
        return total
    return physical_memory()


def kernel_bytes(N: int, itemsize: int) -> int:
    """Return the number of bytes that kernel=dense, kernel=log or the eager engine needs for N particles."""
    return KERNEL_COPIES * itemsize * N**2


def largest_N(memory: int, itemsize: int) -> int:
    """Return the largest number of particles whose N x N kernel fits into ``memory`` bytes."""
    return math.isqrt(memory // (KERNEL_COPIES * itemsize))


def full_kernel_remedy(N: int, largest: int, crowded: bool, itemsize: int) -> str:
    """Return the remedy for a step that is not possible with a neighbour list, for this N and this machine.

    Up to ``largest`` particles, an N x N kernel is formed instead. ``crowded`` means that the list would be too long.
    """
    remedies = []
    needed = kernel_bytes(N, itemsize)
    if needed <= physical_memory():
        remedies.append(f"use kernel=log, which takes about {needed / 2**30:.0f} GiB")
    remedies.append(f"choose N={largest} or less")
    remedies.append("choose a smaller epsilon" if crowded else "choose a smaller h")
    return ", ".join(remedies) + ", or use weights=uniform"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that an allocation failed, on the CPU or on a GPU."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in ALLOCATION_FAILURES)


@contextlib.contextmanager
def out_of_memory_as_run_error(remedy: str = "choose a smaller N or fewer rows") -> Iterator[None]:
    """Convert a failed allocation of Python or torch within the block into a RunError with ``remedy``."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError("not enough memory", remedy) from error
