"""The cut of a cloud into blocks of rows, which depends on N alone.

A pass runs in parallel over the blocks and adds up their shares in order. The number of threads decides which thread
computes a block, and never the result: a run has the same bits with any number of threads.
"""

from __future__ import annotations

MOST_BLOCKS = 32
"""Maximum number of blocks, and thereby of threads that a pass can use."""
LEAST_ROWS = 8
"""Minimum number of rows of a block."""


def row_blocks(N: int) -> int:
    """Return the number of blocks of N rows: a power of two, so that 2, 4, 8 ... threads have equal work."""
    blocks = 1
    while blocks < MOST_BLOCKS and 2 * blocks * LEAST_ROWS <= N:
        blocks *= 2
    return blocks
