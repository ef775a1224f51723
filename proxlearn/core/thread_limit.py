"""The number of threads that a process may use: one after a fork, because GNU OpenMP's threads do not survive it."""

from __future__ import annotations


class Fork:
    """Whether this process was forked from one in which the threads of GNU OpenMP ran (core/fused/thread_layer.py)."""

    happened = False


def usable_threads(threads: int) -> int:
    """Return the given number of threads, or one in a forked process, where a product on several threads would hang."""
    return 1 if Fork.happened else threads
