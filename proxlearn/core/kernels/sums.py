"""Float64 sums over the tiles of a kernel: sums of logarithms, and the masses that the rows send to the columns."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LogSums", "MassTransport"]

SMALLEST_TOTAL = 1e-280
"""Smallest sum of plain numbers, relative to the largest weight, that is not affected by underflow in float64."""


class LogSums:
    """Running sums, each stored as its largest logarithm and a float64 factor >= 1."""

    def __init__(self, length: int, device: torch.device) -> None:
        self._largest = torch.full((length,), -torch.inf, dtype=torch.float64, device=device)
        self._factor = torch.zeros_like(self._largest)

    def add(self, terms: Tensor) -> None:
        """Add numbers that are given by their logarithms."""
        terms = terms.double()
        largest = torch.maximum(self._largest, terms)
        # exp(-inf - -inf) is not a number, and both sums are 0 there.
        unit = torch.where(largest == -torch.inf, 0.0, largest)
        self._factor.mul_(self._largest.sub_(unit).exp_()).add_(terms.sub(unit).exp_())
        self._largest.copy_(largest)

    def log(self) -> Tensor:
        return self._largest + torch.log(self._factor)


class MassTransport:
    """The masses rho_i Gamma(i,j) z_j / (Gamma z)_i that arrive at the columns, tile by tile.

    No mass is lost beyond the rounding of float64, whatever the precision of log Gamma, because the sum over a row and
    the sums over the columns use the same shares and therefore one exponential per entry. If almost no mass remains for
    a column, the sum of logarithms is used instead, in the kernel's precision; such a column contributes nothing to the
    total, but its logarithm is finite.
    """

    def __init__(self, log_rho: Tensor, log_z: Tensor) -> None:
        self._log_rho, self._log_z = log_rho.double(), log_z.double()
        self._unit = self._log_rho.amax()
        self._totals = torch.zeros_like(self._log_z)
        self._log_sums = LogSums(len(log_z), log_z.device)

    def add(self, log_Gamma: Tensor, rows: slice) -> None:
        """Add the masses of some rows of the kernel without changing ``log_Gamma``."""
        shares = log_Gamma + self._log_z
        shares -= shares.amax(dim=1, keepdim=True)
        logs = shares.to(log_Gamma.dtype) if log_Gamma.dtype != shares.dtype else shares.clone()
        shares.exp_()
        log_rho = self._log_rho[rows] - self._unit - shares.sum(dim=1).log()
        self._totals += log_rho.exp() @ shares
        self._log_sums.add(torch.logsumexp(logs.add_(log_rho.to(logs.dtype)[:, None]), dim=0))

    def log(self) -> Tensor:
        """Return the logarithms of the masses, in float64."""
        logs = torch.where(self._totals > SMALLEST_TOTAL, self._totals.log(), self._log_sums.log())
        return logs + self._unit
