"""A shifted kernel for clouds whose N x N matrix does not fit in memory; its entries are computed when needed.

K, u, q^ and v are those of ``absorbed_kernel``. A row's part of u, q^ and v needs only that row, so a sweep processes
the rows in groups, and only the entries of one group are in memory. Groups of rows and leaves of columns farther apart
than the cut-off are skipped (see ``tile_order``). If the other entries fit into the given memory, they are stored, and
later sweeps read them; the operations, and therefore the bits, are the same.

The entries have the precision of the cloud; all sums are in float64, so that a round conserves mass up to rounding in
float64. The rows are divided into blocks whose number depends only on N, each block has its own v, and the blocks are
summed in order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.thread_layer import row_blocks
from proxlearn.core.fused.tile_order import GROUP, LEAF, Boxes, active_chunks, count_columns, tile_order
from proxlearn.core.fused.vector_math import FAST, FINITE, exp, from_sortable_int, sortable_int

MOST_SUMS = 2**25
"""Largest number of partial sums of v over all blocks, which take up 256 MB."""
WIDEST = 256
"""Largest number of columns in a chunk; shorter loops cost more per pair, and longer ones exceed the L1 cache."""
AT_ONCE = 3
"""Number of coordinates whose squares are added at a time; p is padded to a multiple of this number."""
LINE = 64
"""Size of a cache line in bytes. A vector that crosses lines takes twice as long to read."""


def tile_blocks(N: int) -> int:
    """Return the number of blocks of rows, which depends only on N and is limited by the size of the partial sums."""
    blocks = row_blocks(N)
    while blocks > 1 and blocks * N > MOST_SUMS:
        blocks //= 2
    return blocks


class Tiles(NamedTuple):
    """The rows that this process sweeps and all columns, in the order of the tree, with their bounding boxes.

    The last group is padded with copies of its last row; the last leaf and the coordinates are padded with zeros.
    """

    first: int
    """The first group of rows of this process."""
    rows: np.ndarray
    """Rows, shape (number of groups of this process, GROUP, coordinates)."""
    columns: np.ndarray
    """Columns, shape (coordinates, at least the number of leaves times LEAF)."""
    low: np.ndarray
    high: np.ndarray
    leaf_low: np.ndarray
    leaf_high: np.ndarray
    limit: float
    """Squared distance between two boxes beyond which their tile is skipped."""
    starts: np.ndarray
    """Index of the first entry of each group of rows, followed by the number of entries."""


class Round(NamedTuple):
    """The arrays that a sweep reads and computes, in the order of the tree.

    Padding has no effect: its columns have z^ = 0, and its rows have rho = 0.
    """

    gamma: np.ndarray
    """Potential of each column; that of the padding is -inf, so that no padded entry is the largest of a row."""
    scale: np.floating
    z: np.ndarray
    rho: np.ndarray
    """Weight of each row, shape (number of groups, GROUP)."""
    alpha: np.ndarray
    u: np.ndarray
    q: np.ndarray


@njit(inline="always")
def _add_squares(total, following, columns, start, length, x, r):  # type: ignore[no-untyped-def]
    """Add to total[j] the sum over k of (x[k, r] - columns[k, start + j])^2, and to following[j] the sum for row r + 1.

    The columns are read once for two rows. AT_ONCE coordinates are processed at a time; with more, the compiler would
    need more checks for overlapping arrays than it allows.
    """
    for k in range(0, len(columns), AT_ONCE):
        x0, x1, x2 = x[k, r], x[k + 1, r], x[k + 2, r]
        y0, y1, y2 = x[k, r + 1], x[k + 1, r + 1], x[k + 2, r + 1]
        c0, c1 = columns[k, start : start + length], columns[k + 1, start : start + length]
        c2 = columns[k + 2, start : start + length]
        for j in range(length):
            d0, d1, d2 = x0 - c0[j], x1 - c1[j], x2 - c2[j]
            e0, e1, e2 = y0 - c0[j], y1 - c1[j], y2 - c2[j]
            total[j] += d0 * d0 + d1 * d1 + d2 * d2
            following[j] += e0 * e0 + e1 * e1 + e2 * e2


@compile_pass(fastmath=FINITE, error_model="numpy")
def _exponents(rows, columns, begin, end, gamma, scale, K, tops):  # type: ignore[no-untyped-def]
    """Compute log(Gamma) + gamma for a group of rows and a chunk of columns; update the rows' maxima ``tops``."""
    width = end - begin
    shift = gamma[begin:end]
    K[:] = 0
    for r in range(0, len(tops), 2):
        total, following = K[r * width : (r + 1) * width], K[(r + 1) * width : (r + 2) * width]
        _add_squares(total, following, columns, begin, width, rows, r)
    for r in range(len(tops)):
        row = K[r * width : (r + 1) * width]
        most = sortable_int(tops[r])
        for j in range(width):
            value = shift[j] - row[j] * scale
            row[j] = value
            most = max(most, sortable_int(value))
        tops[r] = from_sortable_int(most)


@compile_pass(fastmath=FINITE, error_model="numpy")
def _exponentials(K, width, tops):  # type: ignore[no-untyped-def]
    for r in range(len(tops)):
        row, top = K[r * width : (r + 1) * width], tops[r]
        for j in range(width):
            row[j] = exp(row[j] - top)


@compile_pass(fastmath=FAST, error_model="numpy")
def _add_products(K, begin, end, z, u):  # type: ignore[no-untyped-def]
    """Add K z^ of a chunk to u."""
    width = end - begin
    factor = z[begin:end]
    for r in range(len(u)):
        row = K[r * width : (r + 1) * width]
        inner = 0.0
        for j in range(width):
            inner += row[j] * factor[j]
        u[r] += inner


@compile_pass(fastmath=FAST, error_model="numpy")
def _add_transposed(K, begin, end, q, v):  # type: ignore[no-untyped-def]
    """Add K^T q^ of a chunk to v, four rows at a time."""
    width = end - begin
    total = v[begin:end]
    for r in range(0, len(q), 4):
        q0, q1, q2, q3 = q[r], q[r + 1], q[r + 2], q[r + 3]
        K0, K1 = K[r * width : (r + 1) * width], K[(r + 1) * width : (r + 2) * width]
        K2, K3 = K[(r + 2) * width : (r + 3) * width], K[(r + 3) * width : (r + 4) * width]
        for j in range(width):
            total[j] += (K0[j] * q0 + K1[j] * q1) + (K2[j] * q2 + K3[j] * q3)


# If all z^ of a row underflow, u = 0 and q^ is infinite, which the fixed point detects.
@compile_pass(error_model="numpy")
def _sweep_groups(first, last, tiles, now, compute, shift, stored, v):  # type: ignore[no-untyped-def]
    """Compute u and q^ of the row groups ``first`` to ``last`` - 1, and the contribution of these rows to v.

    The entries are computed if ``compute`` is true and otherwise read from ``stored``, which is empty if no entries are
    stored. alpha is chosen if ``shift`` is true and otherwise taken from an earlier sweep.
    """
    v[:] = 0
    p, leaves = len(tiles.columns), tiles.leaf_low.shape[1]
    gaps, begins, ends = np.empty(leaves), np.empty(leaves, np.int64), np.empty(leaves, np.int64)
    starts, dtype = tiles.starts, now.gamma.dtype
    most = 0
    if len(stored) == 0:
        for g in range(first, last):
            most = max(most, starts[g + 1] - starts[g])
    memory = np.empty(most + LINE, dtype)
    skip = np.int64(LINE - memory.ctypes.data % LINE) // memory.itemsize
    buffer = memory[skip:]
    rows, tops = np.empty((p, GROUP), dtype), np.empty(GROUP, dtype)
    for g in range(first, last):
        chunks, _ = active_chunks(
            tiles.low,
            tiles.high,
            tiles.first,
            g,
            tiles.leaf_low,
            tiles.leaf_high,
            tiles.limit,
            WIDEST,
            gaps,
            begins,
            ends,
        )
        K = stored[starts[g] : starts[g + 1]] if len(stored) > 0 else buffer
        alpha, u, q, rho = now.alpha[g], now.u[g], now.q[g], now.rho[g]
        if compute:
            tops[:] = -np.inf
            for r in range(len(tops)):
                for k in range(p):
                    rows[k, r] = tiles.rows[g - tiles.first, r, k]
            at = 0
            for c in range(chunks):
                after = at + (ends[c] - begins[c]) * GROUP
                _exponents(rows, tiles.columns, begins[c], ends[c], now.gamma, now.scale, K[at:after], tops)
                at = after
            for r in range(len(tops)):
                if shift:
                    alpha[r] = -tops[r]
                else:
                    tops[r] = -alpha[r]
        u[:] = 0
        at = 0
        for c in range(chunks):
            after = at + (ends[c] - begins[c]) * GROUP
            if compute:
                _exponentials(K[at:after], ends[c] - begins[c], tops)
            _add_products(K[at:after], begins[c], ends[c], now.z, u)
            at = after
        for r in range(len(q)):
            q[r] = rho[r] / u[r]
        at = 0
        for c in range(chunks):
            after = at + (ends[c] - begins[c]) * GROUP
            _add_transposed(K[at:after], begins[c], ends[c], q, v)
            at = after


@compile_pass(parallel=True)
def _sweep_tiles(tiles, now, compute, shift, stored, first, blocks, v):  # type: ignore[no-untyped-def]
    """Sweep len(v) of the cloud's ``blocks`` blocks of rows, starting with the block ``first``."""
    # This function is short on purpose, because Numba compiles a parallel function several times.
    groups = len(tiles.starts) - 1
    for i in prange(len(v)):
        t = first + i
        _sweep_groups(groups * t // blocks, groups * (t + 1) // blocks, tiles, now, compute, shift, stored, v[i])


class TileKernel:
    """A shifted kernel limited to the tiles within a cut-off, stored if its entries fit into ``memory``."""

    def __init__(
        self,
        rows: np.ndarray,
        columns: np.ndarray,
        epsilon: float,
        cutoff: float = np.inf,
        memory: np.ndarray | None = None,
    ) -> None:
        N, p = rows.shape
        self.dtype = dtype = rows.dtype
        # The order is computed from the rows, whose groups are smaller than the leaves and therefore more sensitive.
        self.order = tile_order(rows)
        groups, leaves = -(-N // GROUP), -(-N // LEAF)
        first, last = self._own_groups(groups)
        own = np.pad(self.order, (0, groups * GROUP - N), mode="edge")[first * GROUP : last * GROUP]
        coordinates = -(-p // AT_ONCE) * AT_ONCE
        group_rows = np.zeros((last - first, GROUP, coordinates), dtype)
        # The number of leaves is odd; with a power of two, all coordinates would compete for the same cache lines.
        leaf_columns = _aligned_zeros((coordinates, (leaves | 1) * LEAF), dtype)
        for k in range(p):
            group_rows.reshape(-1, coordinates)[:, k] = rows[own, k]
            leaf_columns[k, :N] = columns[self.order, k]
        boxes = Boxes.around((group_rows[:, :, k].reshape(-1) for k in range(p)), GROUP)
        leaf_boxes = Boxes.around((leaf_columns[k, :N] for k in range(p)), LEAF)
        limit = _squared_limit(cutoff)
        active = np.zeros(groups, np.int64)
        count_columns(*boxes, *leaf_boxes, limit, first, active[first:last])
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(active * GROUP)])
        self.tiles = Tiles(first, group_rows, leaf_columns, *boxes, *leaf_boxes, limit, starts)
        self.entries = int(starts[-1])
        """Number of entries, including padding, that this process computes in the tiles within the cut-off."""
        self.active_share = self._count_all(self.entries) / (groups * GROUP * leaves * LEAF)
        """Share of the tiles that are not skipped."""
        self.is_stored = memory is not None and self.entries <= len(memory)
        self._stored = memory if memory is not None and self.is_stored else np.empty(0, dtype)
        double = np.dtype(np.float64)
        self._parts = _aligned_empty((self._parts_at_once(N), leaves * LEAF), double)
        gamma, z = _aligned_zeros((leaves * LEAF,), dtype), _aligned_zeros((leaves * LEAF,), double)
        gamma[N:] = -np.inf
        alpha, u, q, rho = (np.zeros((groups, GROUP), kind) for kind in (dtype, double, double, double))
        self._round = Round(gamma, dtype.type(1 / (2 * epsilon)), z, rho, alpha, u, q)
        self._is_built = False
        self._log_scale = np.empty(0)

    @property
    def is_complete(self) -> bool:
        """Whether no tile is skipped."""
        return bool(self.active_share == 1)

    def _own_groups(self, groups: int) -> tuple[int, int]:
        """Return the index of the first group of rows that this process sweeps, and one more than the last index."""
        return 0, groups

    def _count_all(self, entries: int) -> int:
        """Return the sum of ``entries`` over all processes."""
        return entries

    def _parts_at_once(self, N: int) -> int:
        """Return the number of blocks of rows whose contributions to v are in memory at once."""
        return tile_blocks(N)

    def build(self, gamma: np.ndarray, log_scale: np.ndarray) -> None:
        """Shift K by e^gamma; the next sweep computes its entries and ``log_scale``."""
        self._round.gamma[: len(gamma)] = gamma[self.order]
        self._is_built, self._log_scale = False, log_scale

    def sweep(self, z: np.ndarray, rho: np.ndarray, u: np.ndarray, q: np.ndarray, v: np.ndarray) -> None:
        """Compute u, q^ and v for z^ in one pass over the pairs."""
        N = len(z)
        self._round.z[:N] = z[self.order]
        self._round.rho.reshape(-1)[:N] = rho[self.order]
        v[self.order] = self._sweep_rows()
        u[self.order] = self._round.u.reshape(-1)[:N]
        q[self.order] = self._round.q.reshape(-1)[:N]
        if not self._is_built:
            self._is_built = True
            self._log_scale[self.order] = self._round.alpha.reshape(-1)[:N]

    def _sweep_rows(self) -> np.ndarray:
        """Compute u, q^ and, in the first sweep after ``build``, alpha of all rows; return v in tree order."""
        N = len(self.order)
        self._sweep_blocks(0, len(self._parts), self._parts)
        total: np.ndarray = self._parts[0, :N].copy()
        for part in self._parts[1:]:
            total += part[:N]
        return total

    def _sweep_blocks(self, first: int, blocks: int, parts: np.ndarray) -> None:
        """Sweep len(parts) of the ``blocks`` blocks, starting with ``first``; store their parts of v in ``parts``."""
        compute = not (self._is_built and self.is_stored)
        _sweep_tiles(self.tiles, self._round, compute, not self._is_built, self._stored, first, blocks, parts)


def tile_memory(N: int, dtype: np.dtype, budget_bytes: int) -> np.ndarray:
    """Return at most ``budget_bytes`` of memory for N particles; the system provides it when it is first used."""
    padded = -(-N // LEAF) * LEAF
    return _aligned_empty((min(budget_bytes // dtype.itemsize, padded**2),), dtype)


def _squared_limit(cutoff: float) -> float:
    """Return the square of the cut-off, enlarged by more than the float64 rounding error of a squared distance."""
    return cutoff * cutoff * (1 + 1e-9)


def _aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array with undefined entries that starts at the beginning of a cache line."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + LINE, np.uint8)
    skip = -memory.ctypes.data % LINE
    return memory[skip : skip + size].view(dtype).reshape(shape)


def _aligned_zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    array = _aligned_empty(shape, dtype)
    array[...] = 0
    return array
