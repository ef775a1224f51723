"""The size of the tiles of a matrix and whether they are kept, derived from the size of the matrix and the free memory.

The size of a tile depends only on the matrix and on the device, unless the memory is too small even for one tile. The
free memory decides only which matrices are kept and which are rebuilt, so the results are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from proxlearn.memory import free_memory

__all__ = ["Tiling", "fits_in_memory", "make_tiling"]

SHARE = 4
"""Matrices are kept if they take up at most 1/SHARE of the free memory."""
ALWAYS_FITS = 2**26
"""Number of bytes that are assumed to fit without a look at the free memory."""
CPU_ENTRIES, GPU_ENTRIES = 2**20, 2**24
"""Number of entries of a tile: few enough for the processor's cache, or enough to occupy a GPU."""
TEMPORARIES = 8
"""Number of matrices of the size of a tile, in float64, that an operation on a tile holds in memory at once."""


@dataclass(frozen=True)
class Tiling:
    """The division of a matrix into tiles of whole rows."""

    num_rows: int
    size: int
    """Number of rows per tile."""
    keep: bool
    """Whether a tile is kept after its first use, or rebuilt for every use."""

    def __iter__(self) -> Iterator[slice]:
        return (slice(first, first + self.size) for first in range(0, self.num_rows, self.size))


def fits_in_memory(num_bytes: int, device: torch.device) -> bool:
    """Return whether matrices of this size may be kept in the memory of a device."""
    return num_bytes <= ALWAYS_FITS or num_bytes <= free_memory(device) // SHARE


def make_tiling(num_rows: int, num_columns: int, device: torch.device, kept_bytes: int) -> Tiling:
    """Return the tiling of a matrix; all tiles are kept if ``kept_bytes``, their total size, fits in the memory."""
    free = free_memory(device)
    entries = CPU_ENTRIES if device.type == "cpu" else GPU_ENTRIES
    entries = min(entries, free // (SHARE * TEMPORARIES * 8))
    return Tiling(num_rows, max(1, entries // max(1, num_columns)), kept_bytes <= free // SHARE)
