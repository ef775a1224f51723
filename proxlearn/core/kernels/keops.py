"""The log kernel as a formula that pykeops compiles for a GPU, so that no matrix is stored."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from torch import Tensor

from proxlearn.core.kernels.kernel import centred

__all__ = ["FAILURE", "KeOpsLogKernel", "try_kernel"]

DEVICES = ("cuda",)
"""Devices on which the kernel is a formula; on the CPU, the fused engine uses its own compiled functions."""
MOST_COORDINATES = 100
"""Largest dimension p for which a formula is used, because all coordinates of a particle must fit into registers."""


class Failure:
    """The reason why an installed pykeops cannot be used."""

    reason: str | None = None
    reported = False

    def take(self) -> str | None:
        """Return the reason at the first call after a failure, and None otherwise, so each failure is reported once."""
        if self.reason is None or self.reported:
            return None
        self.reported = True
        return self.reason


FAILURE = Failure()


class KeOpsLogKernel:
    """The log kernel as a formula of the two clouds; each entry is computed when it is summed.

    All operations use one formula, so that it is compiled once per precision and dimension p, with a C++ compiler or
    with CUDA's. A formula cannot contain the minimum of each row; the soft minimum -2 epsilon log(Gamma 1) is used
    instead.
    """

    def __init__(self, rows: Tensor, columns: Tensor, epsilon: float) -> None:
        self.rows, self.columns, self.epsilon = rows.contiguous(), columns.contiguous(), epsilon
        self._lazy_tensor = _load()
        nothing = rows.new_zeros(len(columns))
        self.row_shift = self._logsumexp(self.rows, self.columns, rows.new_zeros(len(rows)), nothing, nothing)
        self._nearest = self.row_shift * (-2 * epsilon)

    def log_apply(self, log_z: Tensor) -> Tensor:
        values, centre = centred(log_z, self.rows.dtype)
        return self._over_columns(values).to(log_z.dtype) + centre

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        values, centre = centred(log_q, self.rows.dtype)
        return self._over_rows(values).to(log_q.dtype) + centre

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        log_q = log_rho.double() - self._over_columns(log_z.double())
        return (log_z.double() + self._over_rows(log_q)).to(log_rho.dtype)

    def _over_columns(self, log_z: Tensor) -> Tensor:
        """Return log(Gamma' z) in the precision of log z."""
        rows, columns, nearest = (part.to(log_z.dtype) for part in (self.rows, self.columns, self._nearest))
        return self._logsumexp(rows, columns, nearest, torch.zeros_like(log_z), log_z)

    def _over_rows(self, log_q: Tensor) -> Tensor:
        """Return log(Gamma'^T q') in the precision of log q."""
        rows, columns, nearest = (part.to(log_q.dtype) for part in (self.rows, self.columns, self._nearest))
        return self._logsumexp(columns, rows, torch.zeros_like(columns[:, 0]), nearest, log_q)

    def _logsumexp(self, x: Tensor, y: Tensor, x_cost: Tensor, y_cost: Tensor, potential: Tensor) -> Tensor:
        """Return log sum_j exp((x_cost_i + y_cost_j - |x_i - y_j|^2) / 2 epsilon + potential_j) for every i."""
        lazy = self._lazy_tensor
        distances = (lazy(x[:, None]) - lazy(y[None])).square().sum(-1)
        costs = lazy(x_cost[:, None, None]) + lazy(y_cost[None, :, None]) - distances
        # Epsilon is passed as a tensor, so that a schedule can change it without recompiling the formula.
        entries = costs / lazy(x.new_tensor([2 * self.epsilon])) + lazy(potential.contiguous()[None, :, None])
        sums: Tensor = entries.logsumexp(dim=1)
        return sums.view(-1)


def try_kernel(rows: Tensor, columns: Tensor, epsilon: float) -> KeOpsLogKernel | None:
    """Return the kernel as a formula; None on the CPU, in too many dimensions, or if pykeops is missing or fails."""
    if rows.device.type not in DEVICES or rows.shape[1] > MOST_COORDINATES or FAILURE.reason is not None:
        return None
    try:
        # pykeops reports its compilations on stdout, which is reserved for results.
        with contextlib.redirect_stdout(sys.stderr):
            return KeOpsLogKernel(rows, columns, epsilon)
    except ModuleNotFoundError as error:
        if error.name != "pykeops":
            FAILURE.reason = str(error)
    except Exception as error:
        # A missing or failing compiler raises errors of many types, and none of them should end a run.
        FAILURE.reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return None


def _load() -> Any:
    """Import pykeops at the first call, and return its class LazyTensor."""
    import pykeops
    from pykeops.torch import LazyTensor

    pykeops.set_verbose(False)
    return LazyTensor
