"""Timings on a noisy machine: calls alternate in one process, and the minimum over several batches is used."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]
BATCHES = 40
"""Approximate number of batches per comparison, which determines how many calls a batch has."""


def timings(calls: Mapping[str, Call], seconds: float, least: int = 3) -> dict[str, list[float]]:
    """Return, for each call, a list of its mean times in milliseconds, one per batch.

    Batches of the calls alternate for about ``seconds`` seconds in total, and there are at least ``least`` batches per
    call.
    """
    milliseconds: dict[str, list[float]] = {name: [] for name in calls}
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        # Batches are long, because the minimum over batches of a few milliseconds would underestimate the time in a
        # run.
        repeats[name] = max(1, int(seconds / BATCHES / (time.perf_counter() - start + 1e-9)))
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or time.perf_counter() < end:
        rounds += 1
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            milliseconds[name].append(1e3 * (time.perf_counter() - start) / repeats[name])
    return milliseconds


def best_of(calls: Mapping[str, Call], seconds: float, least: int = 3) -> dict[str, float]:
    """Return, for each call, the smallest of its mean times per batch, in milliseconds."""
    return {name: min(batches) for name, batches in timings(calls, seconds, least).items()}


def busy_share(seconds: float = 0.5) -> float | None:
    """Return the share of the cores that other processes use, or None if the system does not report it."""

    def read_counters() -> tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as file:
            numbers = [int(word) for word in file.readline().split()[1:]]
        return sum(numbers), numbers[3] + numbers[4]

    try:
        total, idle = read_counters()
        time.sleep(seconds)
        later, idle_later = read_counters()
    except (OSError, ValueError, IndexError):
        return None
    return 1 - (idle_later - idle) / max(later - total, 1)


def machine_info() -> dict[str, object]:
    """Return the processor, the numbers of cores and of threads, and the versions of packages that affect the times."""
    import platform

    import numba
    import torch

    from proxlearn import __version__

    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
        "proxlearn": __version__,
        "torch": torch.__version__,
        "numba": numba.__version__,
    }
