"""Who is near whom: neighbour lists built from cells, as molecular dynamics codes build them.

A cell is a box on the few widest coordinates, at least as wide as the radius asked for, so that all neighbours of a
point lie in its own cell and the adjacent ones. Distances stop being summed as soon as they exceed the radius.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from proxlearn.core.fused.functions import FAST

CELL_COORDINATES = 4
CHUNK = 8


@dataclass(frozen=True)
class Grid:
    """Points sorted by cell, their widest coordinates first."""

    points: np.ndarray
    order: np.ndarray
    """points[i] is the cloud's row order[i]."""
    cell: np.ndarray
    """Cell of each sorted point, as whole coordinates, N x CELL_COORDINATES."""
    starts: np.ndarray
    """First sorted point of each cell, and the end."""
    shape: np.ndarray


def make_grid(cloud: np.ndarray, radius: float) -> Grid:
    """Sort a cloud into cells at least ``radius`` wide, and not many more of them than points."""
    N = len(cloud)
    low, high = cloud.min(axis=0).astype(np.float64), cloud.max(axis=0).astype(np.float64)
    widest = np.argsort(-(high - low), kind="stable")
    used = widest[:CELL_COORDINATES]
    per_axis = max(1, round((4 * N) ** (1 / len(used))))
    spread = (high - low)[used]
    shape = np.ones(CELL_COORDINATES, np.int64)
    shape[: len(used)] = np.clip(np.floor(spread / max(radius, 1e-300)), 1, per_axis)
    cell = np.zeros((N, CELL_COORDINATES), np.int64)
    scale = np.where(spread > 0, shape[: len(used)] / np.where(spread > 0, spread, 1), 0)
    cell[:, : len(used)] = np.clip((cloud[:, used] - low[used]) * scale, 0, shape[: len(used)] - 1).astype(np.int64)
    key = np.asarray(np.ravel_multi_index(tuple(cell.T), tuple(shape)))
    order = np.argsort(key, kind="stable")
    starts = np.searchsorted(key[order], np.arange(int(np.prod(shape)) + 1))
    return Grid(np.ascontiguousarray(cloud[order][:, widest]), order, cell[order], starts, shape)


@njit(inline="always")
def _distance2(x, y, limit):  # type: ignore[no-untyped-def]
    p = len(x)
    total = x.dtype.type(0)
    k = 0
    while k < p and total <= limit:
        end = min(k + CHUNK, p)
        for j in range(k, end):
            total += (x[j] - y[j]) * (x[j] - y[j])
        k = end
    return total


@njit(inline="always")
def _bounds(cell, shape, axis):  # type: ignore[no-untyped-def]
    return max(cell[axis] - 1, 0), min(cell[axis] + 2, shape[axis])


@njit(parallel=True, fastmath=FAST, cache=True)
def _scan(points, cell, starts, shape, limit, counts, nearest, offsets, found, fill):  # type: ignore[no-untyped-def]
    """For each point: how many others are within ``limit`` (squared), how near the nearest is, and (fill) which they
    are."""
    N = len(points)
    for i in prange(N):
        count = 0
        best = points.dtype.type(np.inf)
        x = points[i]
        b0, e0 = _bounds(cell[i], shape, 0)
        b1, e1 = _bounds(cell[i], shape, 1)
        b2, e2 = _bounds(cell[i], shape, 2)
        b3, e3 = _bounds(cell[i], shape, 3)
        for c0 in range(b0, e0):
            for c1 in range(b1, e1):
                for c2 in range(b2, e2):
                    base = ((c0 * shape[1] + c1) * shape[2] + c2) * shape[3]
                    # Cells that differ in the last coordinate only are adjacent in memory.
                    for j in range(starts[base + b3], starts[base + e3]):
                        if j != i:
                            distance = _distance2(x, points[j], limit)
                            if distance <= limit:
                                if fill:
                                    found[offsets[i] + count] = j
                                count += 1
                                best = min(best, distance)
        counts[i] = count
        nearest[i] = best


def _run_scan(
    grid: Grid, radius: float, offsets: np.ndarray, found: np.ndarray, fill: bool
) -> tuple[np.ndarray, float]:
    N = len(grid.points)
    counts, nearest = np.empty(N, np.int64), np.empty(N, grid.points.dtype)
    # Slightly wider, so that a rounded distance never loses a pair.
    limit = grid.points.dtype.type((radius * (1 + 1e-5)) ** 2)
    _scan(grid.points, grid.cell, grid.starts, grid.shape, limit, counts, nearest, offsets, found, fill)
    return counts, float(np.sqrt(nearest.min()))


@dataclass(frozen=True)
class Neighbours:
    """For each particle, the others within ``radius`` of it (rows of a sparse matrix; the diagonal is not in it)."""

    starts: np.ndarray
    columns: np.ndarray
    radius: float

    @property
    def empty(self) -> bool:
        return len(self.columns) == 0


def candidates(cloud: np.ndarray, radius: float) -> float:
    """How many pairs a scan would look at, about: the cost of building a list, for deciding whether to."""
    grid = make_grid(cloud, radius)
    share = np.prod(np.minimum(3 / grid.shape, 1.0))
    return float(share) * len(cloud) ** 2


def build_list(cloud: np.ndarray, radius: float, most: int) -> Neighbours | None:
    """The list of a reference cloud, a function of it and the radius alone; None where it would exceed ``most``
    pairs."""
    nothing = np.empty(0, np.int64)
    grid = make_grid(cloud, radius)
    counts, _ = _run_scan(grid, radius, nothing, nothing, fill=False)
    total = int(counts.sum())
    if total > most:
        return None
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    found = np.empty(total, np.int64)
    if total:
        _run_scan(grid, radius, offsets, found, fill=True)
    # Back from sorted points to particles, columns in increasing order.
    row = np.repeat(grid.order, counts)
    column = grid.order[found]
    sorting: np.ndarray = np.lexsort((column, row))
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(row, minlength=len(cloud)))))
    return Neighbours(starts, column[sorting].astype(np.int32), radius)


NOT_QUITE = 1 - 1e-4
"""An empty radius keeps away from the closest pair by more than a list is wider than asked for: its list is empty,
too."""
BUDGET = 400
"""Candidate pairs a particle for the search of a wider empty radius: a few steps' worth of time."""


def widest_empty(cloud: np.ndarray, radius: float) -> float:
    """Given that no pair is within ``radius``: the distance of the closest pair, or as much of it as is cheap to
    know."""
    N = len(cloud)
    if N <= 2000:
        grid = make_grid(cloud, np.inf)
        _, nearest = _run_scan(
            grid,
            float(np.sqrt(np.finfo(cloud.dtype).max) / 4),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            fill=False,
        )
        return nearest * NOT_QUITE if np.isfinite(nearest) else radius
    while candidates(cloud, 1.3 * radius) <= BUDGET * N:
        _, nearest = _run_scan(
            make_grid(cloud, 1.3 * radius), 1.3 * radius, np.empty(0, np.int64), np.empty(0, np.int64), fill=False
        )
        if np.isfinite(nearest):
            return nearest * NOT_QUITE
        radius *= 1.3
    return radius


@njit(parallel=True, fastmath=FAST, cache=True)
def _farthest(x, y, blocks):  # type: ignore[no-untyped-def]
    N, p = x.shape
    for t in prange(len(blocks)):
        largest = x.dtype.type(0)
        for i in range(N * t // len(blocks), N * (t + 1) // len(blocks)):
            total = x.dtype.type(0)
            for k in range(p):
                total += (x[i, k] - y[i, k]) ** 2
            largest = max(largest, total)
        blocks[t] = largest


def farthest(x: np.ndarray, y: np.ndarray, blocks: np.ndarray) -> float:
    """Largest distance between rows of two clouds; ``blocks`` is scratch memory."""
    _farthest(x, y, blocks)
    return float(np.sqrt(blocks.max()))
