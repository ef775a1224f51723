"""A neighbour list between two clouds for a single step, for few particles in few dimensions.

If particles move by a large part of the cut-off in one step, no list is valid for a second step. The list is then built
between the cloud and its successor, within the cut-off only and by one thread. This takes a quarter of the time that a
list with a margin takes (neighbour_list.py).
"""

from __future__ import annotations

import numpy as np

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.neighbour_list import NeighbourList
from proxlearn.core.fused.vector_math import FINITE

MOST_COORDINATES = 3
"""Largest dimension of a particle for which a one-step list is built; in more dimensions, cells in two coordinates
separate points poorly.
"""
MOST_ROWS = 4096
"""Number of particles above which a list for several steps, with several threads, is faster than a one-step list."""
WIDER = 1 + 1e-5
"""Factor by which the list is wider than the cut-off, so that rounding of a distance does not lose a pair."""


@compile_pass(fastmath=FINITE, error_model="numpy")
def _close_pairs(rows, columns, radius, starts, neighbours):  # type: ignore[no-untyped-def]
    """List, for each row, the columns of other particles within ``radius``; return whether they fit in ``neighbours``.

    The columns are sorted into cells in the two widest coordinates, at least as wide as the radius. A third coordinate
    would leave most cells empty, and checking an empty cell takes longer than comparing a few points.
    """
    N, p = columns.shape
    low, spread = np.zeros(MOST_COORDINATES), np.zeros(MOST_COORDINATES)
    for k in range(p):
        least = greatest = columns[0, k]
        for i in range(N):
            least, greatest = min(least, columns[i, k]), max(greatest, columns[i, k])
        low[k], spread[k] = least, greatest - least
    slowest = int(np.argmin(spread))
    first, second = (slowest + 1) % MOST_COORDINATES, (slowest + 2) % MOST_COORDINATES
    most = 2 * np.sqrt(N)
    wide, high = int(max(min(spread[first] / radius, most), 1.0)), int(max(min(spread[second] / radius, most), 1.0))
    across, up = wide / max(spread[first], 1e-300), high / max(spread[second], 1e-300)
    cells = np.zeros(wide * high + 1, np.int64)
    key = np.empty(N, np.int64)
    padded = np.zeros((2, N, MOST_COORDINATES), columns.dtype)
    for i in range(N):
        for k in range(p):
            padded[0, i, k], padded[1, i, k] = rows[i, k], columns[i, k]
        c = min(int((padded[1, i, first] - low[first]) * across), wide - 1)
        d = min(int((padded[1, i, second] - low[second]) * up), high - 1)
        key[i] = c * high + d
        cells[key[i] + 1] += 1
    for c in range(len(cells) - 1):
        cells[c + 1] += cells[c]
    place = cells.copy()
    order, points = np.empty(N, np.int32), np.empty((MOST_COORDINATES, N), columns.dtype)
    for i in range(N):
        target = place[key[i]]
        place[key[i]] += 1
        order[target] = i
        for k in range(MOST_COORDINATES):
            points[k, target] = padded[1, i, k]
    x, y, z = points[0], points[1], points[2]
    limit = columns.dtype.type(radius * radius)
    end = 0
    for i in range(N):
        starts[i] = end
        own_x, own_y, own_z = padded[0, i, 0], padded[0, i, 1], padded[0, i, 2]
        # A row beyond all columns belongs to the outermost cell.
        c = int(min(max((padded[0, i, first] - low[first]) * across, 0.0), wide - 1.0))
        d = int(min(max((padded[0, i, second] - low[second]) * up, 0.0), high - 1.0))
        lowest, highest = max(d - 1, 0), min(d + 2, high)
        for neighbour in range(max(c - 1, 0), min(c + 2, wide)):
            # Cells that differ only in the second coordinate are adjacent in memory.
            begin, stop = cells[neighbour * high + lowest], cells[neighbour * high + highest]
            if end + stop - begin > len(neighbours):
                return False
            for j in range(begin, stop):
                square = (x[j] - own_x) ** 2 + (y[j] - own_y) ** 2 + (z[j] - own_z) ** 2
                neighbours[end] = order[j]
                end += (square <= limit) & (order[j] != i)
    starts[N] = end
    return True


def list_between(rows: np.ndarray, columns: np.ndarray, radius: float, most: int) -> NeighbourList | None:
    """Return a list of the pairs (row i, column j != i) within ``radius``, or None if it may exceed ``most`` pairs."""
    starts, neighbours = np.empty(len(rows) + 1, np.int64), np.empty(most, np.int32)
    if not _close_pairs(rows, columns, radius * WIDER, starts, neighbours):
        return None
    return NeighbourList(starts, neighbours[: starts[-1]], radius)
