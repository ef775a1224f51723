"""What a step needs of the memory, what there is, and what helps where it is not enough."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator

from proxlearn.errors import RunError
from proxlearn.portability import physical_memory

KERNEL_COPIES = 4
"""N x N matrices alive at once: the costs, the kernel, and a round's two temporaries."""
CPU_ALLOCATION = "can't allocate memory"
"""How torch words a failed allocation on the CPU, which is a plain RuntimeError."""


def kernel_bytes(N: int, itemsize: int) -> int:
    """Bytes that kernel=dense, kernel=log and the eager engine need for N particles."""
    return KERNEL_COPIES * itemsize * N**2


def largest_N(memory: int, itemsize: int) -> int:
    """The most particles whose N x N kernel fits."""
    return math.isqrt(memory // (KERNEL_COPIES * itemsize))


def device_memory(device: str) -> int:
    """Bytes of this machine, or of its GPU."""
    if device == "cuda":
        import torch

        total: int = torch.cuda.mem_get_info()[1]
        return total
    return physical_memory()


def full_kernel_remedy(N: int, largest: int, crowded: bool, itemsize: int) -> str:
    """What helps a step that cannot be made with a neighbour list, at this N and on this machine.

    Up to ``largest`` particles an N x N kernel is formed instead; ``crowded``: the list would be too long.
    """
    remedies = []
    needed = kernel_bytes(N, itemsize)
    if needed <= device_memory("cpu"):
        remedies.append(f"use kernel=log, which takes about {needed / 2**30:.0f} GiB")
    remedies.append(f"choose N={largest} or less")
    remedies.append("a smaller epsilon" if crowded else "a smaller h")
    return ", ".join(remedies) + ", or weights=uniform"


@contextlib.contextmanager
def out_of_memory_as_run_error(remedy: str = "choose a smaller N, or fewer rows") -> Iterator[None]:
    """Turn Python's and torch's ways to say that memory ran out into one error with its remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError("the memory is not enough", remedy) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that an allocation failed, on the CPU or on a GPU."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    return isinstance(error, RuntimeError) and (
        CPU_ALLOCATION in str(error) or (torch is not None and isinstance(error, torch.cuda.OutOfMemoryError))
    )
