"""How many threads a process may use: one only after a fork, because GNU OpenMP's threads do not survive it."""

from __future__ import annotations


class Fork:
    """Whether this process was forked from one in which the threads of GNU OpenMP ran (core/fused/thread_layer.py)."""

    happened = False


def usable_threads(threads: int) -> int:
    """So many threads, or one in a forked process: there a product on several would wait for ever."""
    return 1 if Fork.happened else threads
