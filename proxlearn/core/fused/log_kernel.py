"""The compiled form of ``kernel.LogKernel``, for clouds on which the absorbed kernel overflows, as in diverging runs.

The operations are the same, in float64 and without N x N temporaries.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import FINITE, add_squares, exp, from_sortable_int, sortable_int


@compile_pass(parallel=True, fastmath=FINITE)
def _build(rows_t, columns_t, scale, log_Gamma, shift):  # type: ignore[no-untyped-def]
    p, N = rows_t.shape
    for i in prange(N):
        row = log_Gamma[i]
        row[:] = 0
        add_squares(row, columns_t, 0, p, 0, N, rows_t, i)
        least = sortable_int(row[0])
        for j in range(N):
            least = min(least, sortable_int(row[j]))
        nearest = from_sortable_int(least)
        for j in range(N):
            row[j] = (nearest - row[j]) * scale
        shift[i] = -nearest * scale


@compile_pass(parallel=True, fastmath=FINITE)
def _over_columns(log_Gamma, log_z, result):  # type: ignore[no-untyped-def]
    """Compute log sum_j exp(log_Gamma(i,j) + log_z(j)) for every row i."""
    N = len(log_z)
    for i in prange(N):
        row = log_Gamma[i]
        most = sortable_int(row[0] + log_z[0])
        for j in range(N):
            most = max(most, sortable_int(row[j] + log_z[j]))
        top = from_sortable_int(most)
        total = 0.0
        for j in range(N):
            total += exp(row[j] + log_z[j] - top)
        result[i] = top + np.log(total)


@compile_pass(parallel=True, fastmath=FINITE)
def _over_rows(log_Gamma, log_z, log_row, result, blocks):  # type: ignore[no-untyped-def]
    """Compute log sum_i exp(log_Gamma(i,j) + log_z(j) + log_row(i)) for every column j, by blocks of columns."""
    N = len(log_z)
    for t in prange(blocks):
        first, end = N * t // blocks, N * (t + 1) // blocks
        z = log_z[first:end]
        top, total = np.full(end - first, -np.inf), np.zeros(end - first)
        for i in range(N):
            row = log_Gamma[i, first:end]
            for j in range(end - first):
                top[j] = max(top[j], row[j] + z[j] + log_row[i])
        for i in range(N):
            row = log_Gamma[i, first:end]
            for j in range(end - first):
                total[j] += exp(row[j] + z[j] + log_row[i] - top[j])
        for j in range(end - first):
            result[first + j] = top[j] + np.log(total[j])


BLOCK = 2**20
"""Number of entries of the temporary matrices in ``_transport_by_rows``."""
LOG_MASS_ERROR = 1e-9
"""Largest change of the logarithm of the total mass that rounding can cause; a larger change means that mass was lost
or created."""


def keeps_mass(log_rho: np.ndarray, before: np.ndarray) -> bool:
    """Return whether the total mass is conserved up to rounding."""
    return bool(abs(np.logaddexp.reduce(log_rho) - np.logaddexp.reduce(before)) <= LOG_MASS_ERROR)


class FusedLogKernel:
    """The matrix log Gamma, stored in the caller's memory, with the smallest cost of each row subtracted."""

    def __init__(
        self, rows: np.ndarray, columns: np.ndarray, epsilon: float, log_Gamma: np.ndarray, blocks: int
    ) -> None:
        N = len(rows)
        self.log_Gamma, self.blocks = log_Gamma, blocks
        shift = np.empty(N)
        rows_t, columns_t = (np.ascontiguousarray(cloud.T, np.float64) for cloud in (rows, columns))
        _build(rows_t, columns_t, 1 / (2 * epsilon), log_Gamma, shift)
        self.row_shift = torch.from_numpy(shift)
        self._zero = np.zeros(N)

    def log_apply(self, log_z: Tensor) -> Tensor:
        result = np.empty(len(log_z))
        _over_columns(self.log_Gamma, log_z.numpy(), result)
        return torch.from_numpy(result)

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        return self._transposed(self._zero, log_q.numpy())

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        # log z is inside the sum, as in LogKernel; outside, the sum of two large logarithms would lose mass to
        # rounding.
        transported = self._transposed(log_z.numpy(), (log_rho - self.log_apply(log_z)).numpy())
        if keeps_mass(transported.numpy(), log_rho.numpy()):
            return transported
        return self._transport_by_rows(log_rho, log_z)

    def _transport_by_rows(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        """Compute ``log_transport`` in blocks of rows, with the shares of each row normalised as in LogKernel.

        Without the normalisation, a row with two equal entries would send its whole mass to each of them if the cloud
        diverges: log(Gamma z) is then so large (1e20) that adding log 2, for the sum of the two, does not change it.
        """
        log_Gamma, transported = torch.from_numpy(self.log_Gamma), torch.full_like(log_rho, -torch.inf)
        size = max(1, BLOCK // len(log_z))
        for first in range(0, len(log_z), size):
            shares = torch.log_softmax(log_Gamma[first : first + size] + log_z, dim=1)
            block = torch.logsumexp(shares + log_rho[first : first + size, None], dim=0)
            transported = torch.logaddexp(transported, block)
        return transported

    def _transposed(self, log_z: np.ndarray, log_row: np.ndarray) -> Tensor:
        result = np.empty(len(log_z))
        _over_rows(self.log_Gamma, log_z, log_row, result, self.blocks)
        return torch.from_numpy(result)
