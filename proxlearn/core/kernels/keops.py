"""The log kernel as a formula: reductions that the package pykeops compiles for a GPU, without tiles in memory."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from torch import Tensor

from proxlearn.core.kernels.kernel import centred

__all__ = ["FAILURE", "KeOpsLogKernel", "try_kernel"]

MOST_COORDINATES = 100
"""Largest p: a formula keeps the coordinates of a particle in registers, of which a GPU has few."""


class Failure:
    """The reason why pykeops is installed and cannot be used; the training reports it once."""

    reason: str | None = None


FAILURE = Failure()


class KeOpsLogKernel:
    """``LogKernel`` as a formula of the two clouds: each entry is computed where it is summed.

    The first use of a formula compiles it, with a C++ compiler or with that of CUDA.
    """

    def __init__(self, rows: Tensor, columns: Tensor, epsilon: float) -> None:
        self.rows, self.columns, self.epsilon = rows.contiguous(), columns.contiguous(), epsilon
        self._lazy_tensor = _load()
        self._nearest = self._costs(rows.dtype).min(dim=1).view(-1)
        self.row_shift = self._nearest / (-2 * epsilon)

    def log_apply(self, log_z: Tensor) -> Tensor:
        values, centre = centred(log_z, self.rows.dtype)
        entries = self._log_Gamma(values.dtype) + self._over_columns(values)
        return self._logsumexp(entries, 1).to(log_z.dtype) + centre

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        values, centre = centred(log_q, self.rows.dtype)
        entries = self._log_Gamma(values.dtype) + self._over_rows(values)
        return self._logsumexp(entries, 0).to(log_q.dtype) + centre

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        entries = self._log_Gamma(torch.float64) + self._over_columns(log_z.double())
        log_q = log_rho.double() - self._logsumexp(entries, 1)
        return self._logsumexp(entries + self._over_rows(log_q), 0).to(log_rho.dtype)

    def _costs(self, dtype: torch.dtype) -> Any:
        rows = self._lazy_tensor(self.rows.to(dtype)[:, None])
        return (rows - self._lazy_tensor(self.columns.to(dtype)[None])).square().sum(-1)

    def _log_Gamma(self, dtype: torch.dtype) -> Any:
        return (self._over_rows(self._nearest.to(dtype)) - self._costs(dtype)) / (2 * self.epsilon)

    def _over_rows(self, values: Tensor) -> Any:
        return self._lazy_tensor(values.contiguous()[:, None, None])

    def _over_columns(self, values: Tensor) -> Any:
        return self._lazy_tensor(values.contiguous()[None, :, None])

    def _logsumexp(self, entries: Any, dim: int) -> Tensor:
        sums: Tensor = entries.logsumexp(dim=dim)
        return sums.view(-1)


def try_kernel(rows: Tensor, columns: Tensor, epsilon: float) -> KeOpsLogKernel | None:
    """Return the kernel as a formula; None where pykeops is not installed, does not work here or would be slow."""
    if FAILURE.reason is not None or rows.shape[1] > MOST_COORDINATES:
        return None
    try:
        # pykeops reports its compilations on stdout, which carries results only.
        with contextlib.redirect_stdout(sys.stderr):
            return KeOpsLogKernel(rows, columns, epsilon)
    except ModuleNotFoundError as error:
        if error.name != "pykeops":
            FAILURE.reason = str(error)
    except Exception as error:
        # A compiler that is missing or fails shows in errors of many types, none of which should end a run.
        FAILURE.reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return None


def _load() -> Any:
    """Return the class LazyTensor of pykeops, which is imported at the first call."""
    import pykeops
    from pykeops.torch import LazyTensor

    pykeops.set_verbose(False)
    return LazyTensor
