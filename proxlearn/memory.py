"""Functions that determine free and total memory and the size of a kernel, and that detect failed allocations."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator

from proxlearn.errors import InputError, RunError
from proxlearn.portability import available_memory, physical_memory

VARIABLE = "PROXLEARN_MEMORY"
"""Environment variable with an upper limit on the memory that a step may use, such as 2GiB."""
UNITS = {"": 1, "b": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for ending, base in (("b", 1000), ("ib", 1024))
}

KERNEL_COPIES = 4
"""Number of N x N matrices in memory: the costs, the kernel, and two temporary matrices of a Sinkhorn round."""
ALLOCATION_FAILURES = ("can't allocate memory", "out of memory")
"""Parts of the messages of the RuntimeError that torch raises for a failed allocation, on the CPU and on a GPU."""


def free_memory(device: object = "cpu") -> int:
    """Return the free memory in bytes, but at most the limit that the environment variable PROXLEARN_MEMORY sets.

    For cuda, this is the free memory of the GPU; for any other device, it is the machine's memory that this process can
    still use. ``device`` is a torch.device or its name.
    """
    limit = memory_limit()
    if str(device).startswith("cuda"):
        import torch

        where = torch.device(str(device))
        # Memory that torch has reserved but not allocated is free for torch, although the driver reports it as used.
        unused = torch.cuda.memory_reserved(where) - torch.cuda.memory_allocated(where)
        free: int = torch.cuda.mem_get_info(where)[0] + unused
    else:
        free = available_memory()
    return free if limit is None else min(free, limit)


def memory_limit() -> int | None:
    """Return the limit in bytes that the environment variable PROXLEARN_MEMORY sets, or None if it is not set."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    parts = re.fullmatch(r"(\d{1,18}(?:\.\d*)?|\.\d+)\s*([a-z]*)", text.lower(), re.ASCII)
    limit = int(float(parts[1]) * UNITS[parts[2]]) if parts and parts[2] in UNITS else 0
    if limit < 1:
        problem = f"{VARIABLE}={text} is not an amount of memory"
        raise InputError(problem, "use a number > 0 with a unit, such as 2GiB, 1.5GB or 500MiB, or unset the variable")
    return limit


def device_memory(device: str) -> int:
    """Return the total memory of the GPU, if ``device`` is cuda, or of this machine, in bytes."""
    if device == "cuda":
        import torch

        total: int = torch.cuda.mem_get_info()[1]
        return total
    return physical_memory()


def kernel_bytes(N: int, itemsize: int) -> int:
    """Return the number of bytes of the N x N matrices of a step, with ``itemsize`` bytes per number."""
    return KERNEL_COPIES * itemsize * N**2


def largest_N(memory: int, itemsize: int) -> int:
    """Return the largest N for which ``kernel_bytes(N, itemsize)`` is at most ``memory``."""
    return math.isqrt(memory // (KERNEL_COPIES * itemsize))


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
