"""The number of threads that a process may use: only one after a fork, which GNU OpenMP's threads do not survive."""

from __future__ import annotations


class Fork:
    """A flag that is set if this process was forked from one in which threads of GNU OpenMP ran.

    It is set by core/fused/thread_layer.py.
    """

    happened = False


def usable_threads(threads: int) -> int:
    """Return ``threads``, or 1 in a forked process, where a multithreaded matrix product would hang."""
    return 1 if Fork.happened else threads
