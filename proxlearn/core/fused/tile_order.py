"""An order in which particles that are close in space are close in memory, and bounding boxes of the particles.

The order is that of a tree: a set of particles is split at the median of its widest coordinate, down to groups of
``GROUP`` particles. ``LEAF`` consecutive particles form a leaf of the columns, and ``GROUP`` consecutive particles form
a group of the rows; only the last leaf and the last group may be shorter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

from proxlearn.core.fused.code_cache import compile_pass

GROUP = 8
"""Number of rows in a group; a sweep processes these rows together."""
LEAF = 64
"""Number of columns in a leaf, a multiple of the width of a vector register and of ``GROUP``."""


@njit(inline="always")
def _widest(points, order, first, last):  # type: ignore[no-untyped-def]
    """Return the coordinate with the largest extent over the points order[first:last]; the first one if several tie."""
    p = points.shape[1]
    low, high = points[order[first]].copy(), points[order[first]].copy()
    for i in range(first + 1, last):
        point = points[order[i]]
        for k in range(p):
            low[k], high[k] = min(low[k], point[k]), max(high[k], point[k])
    axis = 0
    for k in range(1, p):
        if high[k] - low[k] > high[axis] - low[axis]:
            axis = k
    return axis


@njit(inline="always")
def _partition(key, order, first, last, middle):  # type: ignore[no-untyped-def]
    """Partition ``key[first:last]`` in place, and permute ``order`` in the same way (Hoare's selection algorithm).

    After this, no key before position ``middle`` is larger than any key from ``middle`` on.
    """
    low, high = first, last - 1
    while low < high:
        pivot = key[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while key[i] < pivot:
                i += 1
            while key[j] > pivot:
                j -= 1
            if i <= j:
                key[i], key[j] = key[j], key[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@compile_pass()
def tile_order(points):  # type: ignore[no-untyped-def]
    """Return the indices of the particles in the order of the tree, which depends only on the cloud."""
    N = len(points)
    order, key = np.arange(N), np.empty(N, points.dtype)
    # The traversal is depth first, with at most one pending set per level.
    pending = np.empty((64, 2), np.int64)
    pending[0, 0], pending[0, 1] = 0, N
    size = 1
    while size > 0:
        size -= 1
        first, last = pending[size, 0], pending[size, 1]
        unit = LEAF if last - first > LEAF else GROUP
        units = (last - first + unit - 1) // unit
        if units < 2:
            continue
        axis = _widest(points, order, first, last)
        for i in range(first, last):
            key[i] = points[order[i], axis]
        middle = first + units // 2 * unit
        _partition(key, order, first, last, middle)
        pending[size, 0], pending[size, 1] = first, middle
        pending[size + 1, 0], pending[size + 1, 1] = middle, last
        size += 2
    return order


class Boxes(NamedTuple):
    """The smallest boxes around consecutive particles, in float64, which represents the coordinates exactly."""

    low: np.ndarray
    """Smallest coordinates, shape (p, number of boxes)."""
    high: np.ndarray

    @staticmethod
    def around(coordinates: Iterable[np.ndarray], size: int) -> Boxes:
        """Return one box per ``size`` consecutive particles, given an iterable with one array per coordinate.

        One coordinate at a time is in memory, because an ordered copy of a cloud would be as large as the cloud.
        """
        low, high = [], []
        for values in coordinates:
            starts = np.arange(0, len(values), size)
            low.append(np.minimum.reduceat(values, starts))
            high.append(np.maximum.reduceat(values, starts))
        return Boxes(np.array(low, np.float64), np.array(high, np.float64))


@njit(inline="always")
def squared_gaps(low, high, box, leaf_low, leaf_high, gaps):  # type: ignore[no-untyped-def]
    """Store in ``gaps`` the squared distance between one box and the box of each leaf.

    The first box has the index ``box`` in ``low`` and ``high``.
    """
    gaps[:] = 0
    for k in range(len(low)):
        below, above = low[k, box], high[k, box]
        for leaf in range(len(gaps)):
            gap = max(max(leaf_low[k, leaf] - above, below - leaf_high[k, leaf]), 0.0)
            gaps[leaf] += gap * gap


@njit(inline="always")
def active_chunks(low, high, first, group, leaf_low, leaf_high, limit, widest, gaps, begins, ends):  # type: ignore[no-untyped-def]
    """Find the columns that may be within the cut-off of a group of rows, as chunks of adjacent leaves.

    The boxes ``low``, ``high`` begin with that of the group ``first``. The leaf that contains the group itself is
    always active. Return the number of chunks and of columns.
    """
    squared_gaps(low, high, group - first, leaf_low, leaf_high, gaps)
    gaps[group * GROUP // LEAF] = 0
    chunks = columns = 0
    for leaf in range(len(gaps)):
        if gaps[leaf] <= limit:
            first = leaf * LEAF
            if chunks > 0 and ends[chunks - 1] == first and first - begins[chunks - 1] < widest:
                ends[chunks - 1] = first + LEAF
            else:
                begins[chunks], ends[chunks] = first, first + LEAF
                chunks += 1
            columns += LEAF
    return chunks, columns


@compile_pass()
def count_columns(low, high, leaf_low, leaf_high, limit, first, columns):  # type: ignore[no-untyped-def]
    """Count the active columns of each group of rows; the boxes ``low``, ``high`` begin with the group ``first``."""
    leaves = leaf_low.shape[1]
    gaps, begins, ends = np.empty(leaves), np.empty(leaves, np.int64), np.empty(leaves, np.int64)
    for i in range(len(columns)):
        _, columns[i] = active_chunks(low, high, first, first + i, leaf_low, leaf_high, limit, LEAF, gaps, begins, ends)
