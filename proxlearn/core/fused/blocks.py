"""The division of a cloud into blocks of rows, which depends only on N.

A pass runs in parallel over the blocks and adds their contributions in order. The number of threads affects only which
thread computes a block and never the result, so a run has the same bits with any number of threads.
"""

from __future__ import annotations

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
