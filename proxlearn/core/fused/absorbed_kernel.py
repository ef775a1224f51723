"""Kernels stored as plain numbers and shifted by the current potentials: a round is one pass over K, without
logarithms.

With K(i,j) = exp(alpha_i + log Gamma(i,j) + gamma_j), z = e^gamma z^ and q = e^alpha q^, a round is

    u = K z^,   q^ = rho / u,   v = K^T q^,   log z <- (log xi + gamma - log v) / (1 + kappa),

and row i's part of u, q^ and v needs row i of K alone: K is read once per round. gamma starts at log z_0, and K is
rebuilt when log z has moved too far from it, so that the range is that of the log domain. alpha makes the largest entry
of each row 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numba import njit, prange

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.neighbour_list import NeighbourList
from proxlearn.core.fused.vector_math import FAST, FINITE, add_squares, exp, from_sortable_int, sortable_int


@compile_pass(parallel=True, fastmath=FINITE)
def _dense_kernel(rows_t, columns_t, gamma, scale, K, alpha, shift, limit, counts):  # type: ignore[no-untyped-def]
    p, N = rows_t.shape
    blocks = len(counts)
    for t in prange(blocks):
        within = 0
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            row = K[i]
            row[:] = 0
            add_squares(row, columns_t, 0, p, 0, N, rows_t, i)
            least = sortable_int(row[0])
            for j in range(N):
                least = min(least, sortable_int(row[j]))
            smallest = from_sortable_int(least)
            for j in range(N):
                within += row[j] < limit
            most = sortable_int((smallest - row[0]) * scale + gamma[0])
            for j in range(N):
                value = (smallest - row[j]) * scale + gamma[j]
                row[j] = value
                most = max(most, sortable_int(value))
            top = from_sortable_int(most)
            for j in range(N):
                row[j] = exp(row[j] - top)
            alpha[i] = -top
            shift[i] = -smallest * scale
        counts[t] = within


@compile_pass(parallel=True, fastmath=FAST)
def _dense_sweep(K, z, rho, u, q, v):  # type: ignore[no-untyped-def]
    N = len(K)
    blocks = len(v)
    for t in prange(blocks):
        total = v[t]
        total[:] = 0
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            row = K[i]
            inner = K.dtype.type(0)
            for j in range(N):
                inner += row[j] * z[j]
            share = rho[i] / inner
            u[i] = inner
            q[i] = share
            for j in range(N):
                total[j] += row[j] * share


@compile_pass(parallel=True, fastmath=FINITE)
def _sparse_kernel(rows, columns, starts, index, gamma, scale, K, diagonal, alpha, shift):  # type: ignore[no-untyped-def]
    N, p = rows.shape
    for i in prange(N):
        smallest = K.dtype.type(0)
        for k in range(p):
            smallest += (rows[i, k] - columns[i, k]) ** 2
        own = smallest
        for e in range(starts[i], starts[i + 1]):
            total = K.dtype.type(0)
            for k in range(p):
                total += (rows[i, k] - columns[index[e], k]) ** 2
            K[e] = total
            smallest = min(smallest, total)
        diagonal[i] = (smallest - own) * scale + gamma[i]
        top = diagonal[i]
        for e in range(starts[i], starts[i + 1]):
            K[e] = (smallest - K[e]) * scale + gamma[index[e]]
            top = max(top, K[e])
        diagonal[i] = exp(diagonal[i] - top)
        for e in range(starts[i], starts[i + 1]):
            K[e] = exp(K[e] - top)
        alpha[i] = -top
        shift[i] = -smallest * scale


@njit(inline="always")
def _sparse_rows(first, last, K, diagonal, starts, index, z, rho, u, q, total):  # type: ignore[no-untyped-def]
    total[:] = 0
    for i in range(first, last):
        inner = diagonal[i] * z[i]
        for e in range(starts[i], starts[i + 1]):
            inner += K[e] * z[index[e]]
        share = rho[i] / inner
        u[i] = inner
        q[i] = share
        total[i] += diagonal[i] * share
        for e in range(starts[i], starts[i + 1]):
            total[index[e]] += K[e] * share


@compile_pass(fastmath=FAST)
def _sparse_sweep(K, diagonal, starts, index, z, rho, u, q, v):  # type: ignore[no-untyped-def]
    _sparse_rows(0, len(diagonal), K, diagonal, starts, index, z, rho, u, q, v[0])


@compile_pass(parallel=True, fastmath=FAST)
def _long_sparse_sweep(K, diagonal, starts, index, z, rho, u, q, v):  # type: ignore[no-untyped-def]
    N = len(diagonal)
    blocks = len(v)
    for t in prange(blocks):
        first, last = N * t // blocks, N * (t + 1) // blocks
        _sparse_rows(first, last, K, diagonal, starts, index, z, rho, u, q, v[t])


SHORT = 50_000
"""Number of entries up to which one thread finishes a list before a second thread has started."""


class AbsorbedKernel(ABC):
    """A shifted kernel, dense or sparse, with its potentials and the results of a round."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, epsilon: float, log_rho: np.ndarray, blocks: int) -> None:
        N, dtype = len(rows), rows.dtype
        self.rows, self.columns, self.dtype = rows, columns, dtype
        self.scale = dtype.type(1 / (2 * epsilon))
        self.log_rho = log_rho
        self.unit = float(log_rho.max())
        """Logarithm of the largest weight, which is the unit of the weights in a sweep."""
        self.rho = np.exp(log_rho - self.unit).astype(dtype)
        self.alpha, self.shift = np.empty(N, dtype), np.empty(N, dtype)
        self.u, self.q, self.v = np.empty(N, dtype), np.empty(N, dtype), np.empty((blocks, N), dtype)
        self.gamma, self.log_scale, self.q_scale = np.empty(N, dtype), np.empty(N), np.empty(N)

    def rebuild(self, gamma: np.ndarray) -> None:
        """Build K for values of z near e^gamma."""
        self.gamma = gamma.astype(self.dtype)
        self._build()
        self.log_scale = self.alpha.astype(np.float64) - self.shift
        # q itself may overflow where the weights are in range.
        with np.errstate(over="ignore"):
            self.q_scale = np.exp(self.log_scale + self.unit)

    def sweep(self, log_z: np.ndarray) -> None:
        """Compute u, q^ and v for one round; v has one part per block."""
        self._sweep(np.exp(log_z - self.gamma).astype(self.dtype))

    def logarithms(self) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
        """Return a function that computes log q and log(Gamma z) from the most recent sweep."""
        u, log_scale = self.u.copy(), self.log_scale

        def compute() -> tuple[np.ndarray, np.ndarray]:
            log_Gz = np.log(u.astype(np.float64)) - log_scale
            # Not computed from q^, which is 0 where a weight is beyond the range of plain numbers.
            return self.log_rho - log_Gz, log_Gz

        return compute

    @abstractmethod
    def _build(self) -> None:
        """Build K around gamma, using alpha and the shift."""

    @abstractmethod
    def _sweep(self, z: np.ndarray) -> None:
        """Compute u, q^ and v for z^."""


class DenseAbsorbedKernel(AbsorbedKernel):
    """A shifted kernel with all N x N entries, for clouds with many relevant neighbours."""

    def __init__(
        self,
        rows: np.ndarray,
        columns: np.ndarray,
        epsilon: float,
        log_rho: np.ndarray,
        blocks: int,
        K: np.ndarray,
        cutoff: float,
    ) -> None:
        super().__init__(rows, columns, epsilon, log_rho, blocks)
        self.K, self.limit = K, self.dtype.type(cutoff**2)
        self.rows_t, self.columns_t = np.ascontiguousarray(rows.T), np.ascontiguousarray(columns.T)
        self.counts = np.empty(blocks, np.int64)

    def _build(self) -> None:
        _dense_kernel(
            self.rows_t, self.columns_t, self.gamma, self.scale, self.K, self.alpha, self.shift, self.limit, self.counts
        )

    def _sweep(self, z: np.ndarray) -> None:
        _dense_sweep(self.K, z, self.rho, self.u, self.q, self.v)


class SparseAbsorbedKernel(AbsorbedKernel):
    """A shifted kernel with the diagonal and the entries of a neighbour list, for clouds with few relevant
    neighbours."""

    def __init__(
        self,
        rows: np.ndarray,
        columns: np.ndarray,
        epsilon: float,
        log_rho: np.ndarray,
        blocks: int,
        neighbours: NeighbourList,
    ) -> None:
        self.short = len(neighbours.columns) <= SHORT
        super().__init__(rows, columns, epsilon, log_rho, 1 if self.short else blocks)
        self.list = neighbours
        self.K, self.diagonal = np.empty(len(neighbours.columns), self.dtype), np.empty(len(rows), self.dtype)

    def _build(self) -> None:
        starts, index = self.list.starts, self.list.columns
        args = (self.rows, self.columns, starts, index, self.gamma, self.scale)
        _sparse_kernel(*args, self.K, self.diagonal, self.alpha, self.shift)

    def _sweep(self, z: np.ndarray) -> None:
        sweep = _sparse_sweep if self.short else _long_sparse_sweep
        sweep(self.K, self.diagonal, self.list.starts, self.list.columns, z, self.rho, self.u, self.q, self.v)
