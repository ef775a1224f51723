"""Neighbour lists, built from cells as in molecular dynamics codes.

A cell is a box in the few widest coordinates, at least as wide as the radius, so that all neighbours of a point lie in
the same cell or in an adjacent one. Squared distances are added up over the coordinates; for each point, the summation
ends as soon as no point in these cells can be within the radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from proxlearn.core.fused.code_cache import compile_helper, compile_pass
from proxlearn.core.fused.thread_layer import row_blocks
from proxlearn.core.fused.vector_math import FAST, FINITE, add_squares, from_sortable_int, sortable_int

CELL_COORDINATES = 4
CHUNK = 8


@dataclass(frozen=True)
class Grid:
    """The points of a cloud sorted by cell, with one array per coordinate, the widest coordinate first."""

    points: np.ndarray
    """Coordinates of the sorted points, shape (p, N)."""
    order: np.ndarray
    """Row of the cloud to which each sorted point belongs: sorted point i is row order[i]."""
    cell: np.ndarray
    """Cell of each sorted point as integer coordinates, shape (N, CELL_COORDINATES)."""
    starts: np.ndarray
    """Index of the first sorted point of each cell, followed by the number of points."""
    shape: np.ndarray


@compile_pass()
def _extent(cloud):  # type: ignore[no-untyped-def]
    low, high = cloud[0].astype(np.float64), cloud[0].astype(np.float64)
    for i in range(len(cloud)):
        for k in range(cloud.shape[1]):
            low[k], high[k] = min(low[k], cloud[i, k]), max(high[k], cloud[i, k])
    return low, high


@compile_pass()
def _into_cells(cloud, low, scale, shape, used, axes):  # type: ignore[no-untyped-def]
    """Sort the points by cell (a counting sort); return the points, order, cell and starts of a Grid.

    ``used`` contains the coordinates that define the cells, or -1, and ``axes`` the order of all coordinates.
    """
    N, p = cloud.shape
    cells = np.zeros((N, CELL_COORDINATES), np.int64)
    key = np.zeros(N, np.int64)
    starts = np.zeros(np.prod(shape) + 1, np.int64)
    for i in range(N):
        for d in range(CELL_COORDINATES):
            if used[d] >= 0:
                position = int((cloud[i, used[d]] - low[used[d]]) * scale[d])
                cells[i, d] = min(max(position, 0), shape[d] - 1)
            key[i] = key[i] * shape[d] + cells[i, d]
        starts[key[i] + 1] += 1
    starts = np.cumsum(starts)
    place = starts[:-1].copy()
    order, points, cell = np.empty(N, np.int64), np.empty((p, N), cloud.dtype), np.empty_like(cells)
    for i in range(N):
        target = place[key[i]]
        place[key[i]] += 1
        order[target] = i
        cell[target] = cells[i]
        for k in range(p):
            points[k, target] = cloud[i, axes[k]]
    return points, order, cell, starts


def make_grid(cloud: np.ndarray, radius: float) -> Grid:
    """Sort a cloud into cells at least ``radius`` wide; there are at most about four times as many cells as points."""
    low, high = _extent(cloud)
    axes = np.argsort(low - high, kind="stable")
    used = np.full(CELL_COORDINATES, -1)
    shape, scale = np.ones(CELL_COORDINATES, np.int64), np.zeros(CELL_COORDINATES)
    most = max(1, round((4 * len(cloud)) ** (1 / min(CELL_COORDINATES, len(axes)))))
    # The used coordinates of a cell come last, because cells that differ only in the last coordinate are adjacent in
    # memory.
    for d, axis in enumerate(axes[:CELL_COORDINATES], start=max(0, CELL_COORDINATES - len(axes))):
        spread = high[axis] - low[axis]
        if spread > 0:
            used[d] = axis
            shape[d] = int(min(max(spread / max(radius, 1e-300), 1), most))
            scale[d] = shape[d] / spread
    points, order, cell, starts = _into_cells(cloud, low, scale, shape, used, axes)
    return Grid(points, order, cell, starts, shape)


@njit(inline="always")
def _bounds(cell, shape, axis):  # type: ignore[no-untyped-def]
    return max(cell[axis] - 1, 0), min(cell[axis] + 2, shape[axis])


@compile_pass(parallel=True, fastmath=FINITE)
def _scan(points, cell, starts, shape, limit, far, counts, nearest, pairs):  # type: ignore[no-untyped-def]
    """Find, per block, the pairs within ``limit`` and the smallest distance up to ``far``; all distances are squared.

    Each point is compared with the points after it. All pairs within ``limit`` are counted; those that fit in ``pairs``
    are stored.
    """
    p, N = points.shape
    blocks = len(counts)
    for t in prange(blocks):
        # Later points have fewer successors; square roots give the blocks equal work.
        first = N - int(N * np.sqrt(1 - t / blocks))
        last = N - int(N * np.sqrt(1 - (t + 1) / blocks))
        distance = np.empty(N, points.dtype)
        count = 0
        best = points.dtype.type(np.inf)
        capacity = pairs.shape[1]
        for i in range(first, last):
            b0, e0 = _bounds(cell[i], shape, 0)
            b1, e1 = _bounds(cell[i], shape, 1)
            b2, e2 = _bounds(cell[i], shape, 2)
            b3, e3 = _bounds(cell[i], shape, 3)
            for c0 in range(b0, e0):
                for c1 in range(b1, e1):
                    for c2 in range(b2, e2):
                        base = ((c0 * shape[1] + c1) * shape[2] + c2) * shape[3]
                        # Cells that differ in the last coordinate only are adjacent in memory.
                        begin = max(starts[base + b3], i + 1)
                        length = starts[base + e3] - begin
                        if length <= 0:
                            continue
                        k = 0
                        smallest = points.dtype.type(0)
                        distance[:length] = 0
                        while k < p and smallest <= far:
                            end = min(k + CHUNK, p)
                            add_squares(distance, points, k, end, begin, length, points, i)
                            k = end
                            least = sortable_int(distance[0])
                            for j in range(1, length):
                                least = min(least, sortable_int(distance[j]))
                            smallest = from_sortable_int(least)
                        if smallest > far:
                            continue
                        best = min(best, smallest)
                        if smallest <= limit:
                            for j in range(length):
                                if distance[j] <= limit:
                                    if count < capacity:
                                        pairs[t, count, 0] = i
                                        pairs[t, count, 1] = begin + j
                                    count += 1
        counts[t] = count
        nearest[t] = best


def _run_scan(grid: Grid, radius: float, far: float, capacity: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Scan for pairs of points; return the counts, the pairs and the smallest distance.

    The counts are the numbers of pairs within ``radius`` per block; at most ``capacity`` pairs per block are returned.
    The smallest distance is infinite if the scan finds no pair within max(radius, far).
    """
    dtype, blocks = grid.points.dtype, row_blocks(grid.points.shape[1])
    counts, nearest, pairs = (
        np.empty(blocks, np.int64),
        np.empty(blocks, dtype),
        np.empty((blocks, capacity, 2), np.int32),
    )
    # The limit is slightly larger than the radius, so that rounding of a distance does not lose a pair.
    limit, beyond = (dtype.type((r * (1 + 1e-5)) ** 2) for r in (radius, max(radius, far)))
    _scan(grid.points, grid.cell, grid.starts, grid.shape, limit, beyond, counts, nearest, pairs)
    return counts, pairs, float(np.sqrt(nearest.min()))


@dataclass(frozen=True)
class NeighbourList:
    """The neighbours of each particle within ``radius``, stored as the rows of a sparse matrix without a diagonal."""

    starts: np.ndarray
    columns: np.ndarray
    radius: float

    @property
    def empty(self) -> bool:
        return len(self.columns) == 0


@compile_pass()
def _both_ways(rows, columns, N):  # type: ignore[no-untyped-def]
    """Return the starts and columns of the sparse matrix that contains each pair (i, j) in row i and in row j."""
    starts = np.zeros(N + 1, np.int64)
    for e in range(len(rows)):
        starts[rows[e] + 1] += 1
        starts[columns[e] + 1] += 1
    starts = np.cumsum(starts)
    place = starts[:-1].copy()
    index = np.empty(2 * len(rows), np.int32)
    for e in range(len(rows)):
        i, j = rows[e], columns[e]
        index[place[i]] = j
        place[i] += 1
        index[place[j]] = i
        place[j] += 1
    return starts, index


def candidate_pairs(cloud: np.ndarray, radius: float) -> float:
    """Return the approximate number of pairs that a scan compares, which determines the cost of building a list."""
    grid = make_grid(cloud, radius)
    share = np.prod(np.minimum(3 / grid.shape, 1.0))
    return float(share) * len(cloud) ** 2


SAMPLED = 32
"""Number of particles whose neighbours ``mean_neighbours`` counts."""
PART = 2**13
"""Number of particles with which ``mean_neighbours`` compares the sampled particles at a time."""


def mean_neighbours(cloud: np.ndarray, radius: float) -> float:
    """Estimate the mean number of neighbours within a radius from about SAMPLED particles, equally spaced by index."""
    sample = cloud[:: max(1, len(cloud) // SAMPLED)]
    counts = np.full(len(sample), -1)
    # The distances are computed in parts, because the differences of a whole cloud take up as much memory as the cloud.
    for part in np.split(cloud, range(PART, len(cloud), PART)):
        for k, point in enumerate(sample):
            counts[k] += np.count_nonzero(np.square(part - point).sum(axis=1) <= radius**2)
    return float(np.mean(counts))


def build_list(cloud: np.ndarray, radius: float, most: int) -> NeighbourList | None:
    """Return the neighbour list of a cloud for a radius, or None if it would have more than ``most`` entries."""
    grid = make_grid(cloud, radius)
    capacity = min(64 * len(cloud), 2**25) // row_blocks(len(cloud))
    counts, pairs, _ = _run_scan(grid, radius, radius, capacity)
    if 2 * int(counts.sum()) > most:
        return None
    if int(counts.max()) > capacity:
        counts, pairs, _ = _run_scan(grid, radius, radius, int(counts.max()))
    particles = grid.order[np.concatenate([block[:count] for block, count in zip(pairs, counts, strict=True)])]
    starts, columns = _both_ways(particles[:, 0], particles[:, 1], len(cloud))
    return NeighbourList(starts, columns, radius)


EMPTY_MARGIN = 1 - 1e-4
"""Factor by which the distance of the closest pair is multiplied to obtain a radius without pairs. The reduction is
larger than the margin that a scan adds to its radius, so a scan with the reduced radius finds no pair.
"""
BUDGET = 400
"""Number of candidate pairs per particle in the search for a wider empty radius; comparing them takes as long as a few
steps."""


def widest_empty_radius(cloud: np.ndarray, radius: float) -> float:
    """Return the largest radius at which a cheap search, starting from ``radius``, finds no pair."""
    N = len(cloud)
    if N <= 2000:
        everything = float(np.sqrt(np.finfo(cloud.dtype).max) / 4)
        _, _, nearest = _run_scan(make_grid(cloud, everything), 0.0, everything, 0)
        return nearest * EMPTY_MARGIN if np.isfinite(nearest) else radius
    while candidate_pairs(cloud, 1.3 * radius) <= BUDGET * N:
        _, _, nearest = _run_scan(make_grid(cloud, 1.3 * radius), 0.0, 1.3 * radius, 0)
        if np.isfinite(nearest):
            return nearest * EMPTY_MARGIN
        radius *= 1.3
    return radius


@compile_helper(fastmath=FAST, error_model="numpy")
def _largest_square(x, y, first, last):  # type: ignore[no-untyped-def]
    largest = x.dtype.type(0)
    for i in range(first, last):
        total = x.dtype.type(0)
        for k in range(x.shape[1]):
            total += (x[i, k] - y[i, k]) ** 2
        largest = max(largest, total if total == total else x.dtype.type(np.inf))
    return largest


@compile_pass()
def _largest_square_of_few(x, y):  # type: ignore[no-untyped-def]
    return _largest_square(x, y, 0, len(x))


@compile_pass(parallel=True)
def _largest_squares(x, y, blocks):  # type: ignore[no-untyped-def]
    N = len(x)
    for t in prange(len(blocks)):
        blocks[t] = _largest_square(x, y, N * t // len(blocks), N * (t + 1) // len(blocks))


FEW = 2**17
"""Largest number of coordinates that one thread can process before a second thread has started."""


def largest_displacement(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest distance between the i-th rows of two clouds, or infinity for NaN."""
    if x.size <= FEW:
        return math.sqrt(_largest_square_of_few(x, y))
    blocks = np.empty(row_blocks(len(x)), x.dtype)
    _largest_squares(x, y, blocks)
    return float(np.sqrt(blocks.max()))
