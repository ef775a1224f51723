"""Kernels that store numbers instead of logarithms, shifted by the current potentials; a round reads the kernel once.

With K(i,j) = exp(alpha_i + log Gamma(i,j) + gamma_j), z = e^gamma z^ and q = e^alpha q^, a round is

    u = K z^,   q^ = rho / u,   v = K^T q^,   log z <- (log xi + gamma - log v) / (1 + kappa),

and row i's part of u, q^ and v needs only row i of K, so K is read once per round. gamma starts at log z_0, and K is
rebuilt when log z is too far from gamma, so the potentials have the same range as in the log domain. alpha is chosen
such that the largest entry of each row is 1.

The entries of K have the precision of the cloud. u, v, z^ and q^ are in float64: sum_j z^_j v_j then equals sum_i rho_i
up to the rounding of float64, and a step conserves mass in every precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from proxlearn.core.fused.code_cache import compile_helper, compile_pass
from proxlearn.core.fused.neighbour_list import NeighbourList
from proxlearn.core.fused.thread_layer import row_blocks
from proxlearn.core.fused.vector_math import FAST, FINITE, add_squares, exp, from_sortable_int, sortable_int


class AllPairsKernel(NamedTuple):
    """A kernel with all N x N entries, for clouds with many relevant neighbours."""

    rows_t: np.ndarray
    """Coordinates of the points of the rows, p x N."""
    columns_t: np.ndarray
    scale: Any
    """1 / (2 epsilon) in the precision of K."""
    limit: Any
    """Squared distance below which pairs are counted."""
    K: np.ndarray
    counts: np.ndarray
    """Number of pairs within ``limit``, per block of rows; the length is the number of blocks."""
    parts: np.ndarray
    """Contribution of each block of rows to v, shape (blocks, N)."""

    @property
    def dtype(self) -> np.dtype:
        return self.K.dtype


class SparseKernel(NamedTuple):
    """A kernel with the diagonal and the entries in a neighbour list, for clouds with few relevant neighbours."""

    rows: np.ndarray
    """Points of the rows, N x p."""
    columns: np.ndarray
    scale: Any
    limit: Any
    """Squared distance beyond which an entry of the list is omitted, because the list extends beyond the cut-off of a
    step.
    """
    starts: np.ndarray
    neighbours: np.ndarray
    ends: np.ndarray
    """Index after the last entry of each row that is within ``limit``; ``starts`` contains the first index."""
    kept: np.ndarray
    """Columns of the entries that are within ``limit``."""
    K: np.ndarray
    diagonal: np.ndarray
    parts: np.ndarray

    @property
    def dtype(self) -> np.dtype:
        return self.K.dtype


class ShortKernel(SparseKernel):
    """A SparseKernel whose list is so short that one thread is faster than several.

    It is a separate type because the type selects the compiled code.
    """


SHORT = 50_000
"""Largest number of entries that one thread can process before a second thread has started."""


def dense_kernel(rows: np.ndarray, columns: np.ndarray, epsilon: float, K: np.ndarray, limit: float) -> AllPairsKernel:
    """Return the kernel between two clouds, stored in ``K``; building it counts the pairs within ``limit``."""
    N, dtype, blocks = len(rows), rows.dtype, row_blocks(len(rows))
    rows_t, columns_t = np.ascontiguousarray(rows.T), np.ascontiguousarray(columns.T)
    counts, parts = np.zeros(blocks, np.int64), np.empty((blocks, N))
    return AllPairsKernel(rows_t, columns_t, dtype.type(1 / (2 * epsilon)), dtype.type(limit**2), K, counts, parts)


def sparse_kernel(
    rows: np.ndarray, columns: np.ndarray, epsilon: float, neighbours: NeighbourList, cutoff: float
) -> SparseKernel | ShortKernel:
    """Return the kernel of the listed pairs within the cut-off; a short list is processed by a single thread."""
    N, dtype, entries = len(rows), rows.dtype, len(neighbours.columns)
    kind, blocks = (ShortKernel, 1) if entries <= SHORT else (SparseKernel, row_blocks(N))
    K, diagonal, parts = np.empty(entries, dtype), np.empty(N, dtype), np.empty((blocks, N))
    scale, limit = dtype.type(1 / (2 * epsilon)), dtype.type(cutoff**2 * (1 + 1e-5))
    ends, kept = np.empty(N, np.int64), np.empty_like(neighbours.columns)
    return kind(rows, columns, scale, limit, neighbours.starts, neighbours.columns, ends, kept, K, diagonal, parts)


@compile_helper(fastmath=FINITE, error_model="numpy")
def _count_below(row, limit):  # type: ignore[no-untyped-def]
    # This is a separate function so that its loop is vectorised; when ``exp`` was inlined, Numba dropped a statement
    # after the loop.
    count = 0
    for j in range(len(row)):
        count += row[j] < limit
    return count


@compile_helper(fastmath=FINITE, error_model="numpy")
def _build_dense_rows(t, kernel, gamma, log_scale):  # type: ignore[no-untyped-def]
    rows_t, columns_t, scale, limit, K, counts, _ = kernel
    p, N = rows_t.shape
    blocks = len(counts)
    counts[t] = 0
    for i in range(N * t // blocks, N * (t + 1) // blocks):
        row = K[i]
        row[:] = 0
        add_squares(row, columns_t, 0, p, 0, N, rows_t, i)
        least = sortable_int(row[0])
        for j in range(N):
            least = min(least, sortable_int(row[j]))
        smallest = from_sortable_int(least)
        counts[t] += _count_below(row, limit)
        most = sortable_int((smallest - row[0]) * scale + gamma[0])
        for j in range(N):
            value = (smallest - row[j]) * scale + gamma[j]
            row[j] = value
            most = max(most, sortable_int(value))
        top = from_sortable_int(most)
        for j in range(N):
            row[j] = exp(row[j] - top)
        log_scale[i] = smallest * scale - np.float64(top)


@compile_pass(parallel=True)
def build_dense(kernel, gamma, log_scale):  # type: ignore[no-untyped-def]
    """Build K for the shift gamma, and store alpha = log(q / q^) in ``log_scale``.

    The logarithm ``unit`` of the factor common to all weights is not included; the caller adds it.
    """
    for t in prange(len(kernel.counts)):
        _build_dense_rows(np.int64(t), kernel, gamma, log_scale)


# With numpy's error model, u = 0 and q^ is infinite if all z^ of a row underflow, which the fixed point detects.
@compile_helper(fastmath=FAST, error_model="numpy")
def _sweep_dense_rows(t, K, z, rho, u, q, parts):  # type: ignore[no-untyped-def]
    """Compute u, q^ and v for the rows of block t, four rows at a time, because loads take longer than arithmetic."""
    N, blocks, total = len(K), len(parts), parts[t]
    total[:] = 0
    first, last = N * t // blocks, N * (t + 1) // blocks
    whole = first + (last - first) // 4 * 4
    for i in range(first, whole, 4):
        a, b, c, d = K[i], K[i + 1], K[i + 2], K[i + 3]
        ua = ub = uc = ud = 0.0
        for j in range(N):
            ua += a[j] * z[j]
            ub += b[j] * z[j]
            uc += c[j] * z[j]
            ud += d[j] * z[j]
        qa, qb, qc, qd = rho[i] / ua, rho[i + 1] / ub, rho[i + 2] / uc, rho[i + 3] / ud
        u[i], u[i + 1], u[i + 2], u[i + 3] = ua, ub, uc, ud
        q[i], q[i + 1], q[i + 2], q[i + 3] = qa, qb, qc, qd
        for j in range(N):
            total[j] += (a[j] * qa + b[j] * qb) + (c[j] * qc + d[j] * qd)
    for i in range(whole, last):
        row = K[i]
        inner = 0.0
        for j in range(N):
            inner += row[j] * z[j]
        share = rho[i] / inner
        u[i], q[i] = inner, share
        for j in range(N):
            total[j] += row[j] * share


@compile_helper(fastmath=FAST, error_model="numpy")
def _add_parts(parts, v):  # type: ignore[no-untyped-def]
    # A loop instead of v[:] = parts[0], because the error message for arrays of different shapes takes a second to
    # compile.
    for j in range(len(v)):
        v[j] = parts[0, j]
    for t in range(1, len(parts)):
        for j in range(len(v)):
            v[j] += parts[t, j]


@compile_pass(parallel=True)
def sweep_dense(kernel, z, rho, u, q, v):  # type: ignore[no-untyped-def]
    """Compute u, q^ and v for z^."""
    for t in prange(len(kernel.parts)):
        _sweep_dense_rows(np.int64(t), kernel.K, z, rho, u, q, kernel.parts)
    _add_parts(kernel.parts, v)


@compile_helper(fastmath=FINITE, error_model="numpy")
def _build_sparse_row(i, kernel, gamma, log_scale):  # type: ignore[no-untyped-def]
    rows, columns, scale, limit, starts, neighbours, ends, kept, K, diagonal, _ = kernel
    p = rows.shape[1]
    smallest = K.dtype.type(0)
    for k in range(p):
        smallest += (rows[i, k] - columns[i, k]) ** 2
    own, end = smallest, starts[i]
    for e in range(starts[i], starts[i + 1]):
        j = neighbours[e]
        total = K.dtype.type(0)
        for k in range(p):
            total += (rows[i, k] - columns[j, k]) ** 2
        K[end], kept[end] = total, j
        end += total <= limit
        smallest = min(smallest, total)
    ends[i] = end
    top = (smallest - own) * scale + gamma[i]
    diagonal[i] = top
    for e in range(starts[i], end):
        K[e] = (smallest - K[e]) * scale + gamma[kept[e]]
        top = max(top, K[e])
    diagonal[i] = exp(diagonal[i] - top)
    for e in range(starts[i], end):
        K[e] = exp(K[e] - top)
    log_scale[i] = smallest * scale - np.float64(top)


@compile_pass()
def build_short(kernel, gamma, log_scale):  # type: ignore[no-untyped-def]
    """Build K as ``build_dense`` does, for a short neighbour list and on one thread."""
    for i in range(len(gamma)):
        _build_sparse_row(i, kernel, gamma, log_scale)


@compile_pass(parallel=True)
def build_sparse(kernel, gamma, log_scale):  # type: ignore[no-untyped-def]
    """Build K as ``build_dense`` does, for a neighbour list."""
    for i in prange(len(gamma)):
        _build_sparse_row(np.int64(i), kernel, gamma, log_scale)


@compile_helper(fastmath=FAST, error_model="numpy")
def _sweep_sparse_rows(t, kernel, z, rho, u, q):  # type: ignore[no-untyped-def]
    _, _, _, _, starts, _, ends, kept, K, diagonal, parts = kernel
    N, blocks, total = len(diagonal), len(parts), parts[t]
    total[:] = 0
    for i in range(N * t // blocks, N * (t + 1) // blocks):
        inner = diagonal[i] * z[i]
        for e in range(starts[i], ends[i]):
            inner += K[e] * z[kept[e]]
        share = rho[i] / inner
        u[i], q[i] = inner, share
        total[i] += diagonal[i] * share
        for e in range(starts[i], ends[i]):
            total[kept[e]] += K[e] * share


@compile_pass()
def sweep_short(kernel, z, rho, u, q, v):  # type: ignore[no-untyped-def]
    """Compute u, q^ and v for z^ and a short neighbour list, on one thread."""
    _sweep_sparse_rows(0, kernel, z, rho, u, q)
    _add_parts(kernel.parts, v)


@compile_pass(parallel=True)
def sweep_sparse(kernel, z, rho, u, q, v):  # type: ignore[no-untyped-def]
    """Compute u, q^ and v for z^ and a neighbour list."""
    for t in prange(len(kernel.parts)):
        _sweep_sparse_rows(np.int64(t), kernel, z, rho, u, q)
    _add_parts(kernel.parts, v)
