"""The Gibbs kernel Gamma = exp(-C / 2 epsilon), and two implementations that store an N x N matrix.

The fixed point of Algorithm 1 (proximal.py) uses a kernel only through the operations of ``Kernel``, on logarithms, and
does not depend on how Gamma is stored. Distances and exponentials have the precision of the locations. The potentials
and the weights may have a higher precision; the mass is then distributed in that precision.

``DenseKernel`` stores Gamma, as the paper does, so its entries may underflow. ``LogKernel`` stores the logarithm of
Gamma, which cannot underflow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

__all__ = [
    "DenseKernel",
    "Kernel",
    "LogKernel",
    "LogSums",
    "MassTransport",
    "RangedKernel",
    "centred",
    "squared_distances",
]

SMALLEST_TOTAL = 1e-280
"""Smallest mass of a column that is not affected by underflow in float64, as a multiple of the largest weight."""


class LogSums:
    """Running sums of positive numbers, each stored as the logarithm of its largest term and a float64 factor >= 1."""

    def __init__(self, length: int, device: torch.device) -> None:
        self._largest = torch.full((length,), -torch.inf, dtype=torch.float64, device=device)
        self._factor = torch.zeros_like(self._largest)

    def add(self, terms: Tensor) -> None:
        """Add one number to each sum; ``terms`` contains the logarithms of the numbers."""
        terms = terms.double()
        largest = torch.maximum(self._largest, terms)
        # exp(-inf - -inf) is not a number, and both sums are 0 there.
        unit = torch.where(largest == -torch.inf, 0.0, largest)
        self._factor.mul_(self._largest.sub_(unit).exp_()).add_(terms.sub(unit).exp_())
        self._largest.copy_(largest)

    def log(self) -> Tensor:
        return self._largest + torch.log(self._factor)


class MassTransport:
    """The mass sum_i rho_i Gamma(i,j) z_j / (Gamma z)_i that each column j receives, summed tile by tile.

    No mass is lost beyond the rounding of float64, whatever the precision of log Gamma, because the sum over a row and
    the sums over the columns use the same shares and therefore one exponential per entry. If a column receives almost
    no mass, the sum of logarithms is used instead, in the kernel's precision; such a column contributes nothing
    to the total, but its logarithm is finite.
    """

    def __init__(self, log_rho: Tensor, log_z: Tensor) -> None:
        self._log_rho, self._log_z = log_rho.double(), log_z.double()
        self._unit = self._log_rho.amax()
        self._totals = torch.zeros_like(self._log_z)
        self._log_sums = LogSums(len(log_z), log_z.device)

    def add(self, log_Gamma: Tensor, rows: slice) -> None:
        """Add the masses that the given rows of the kernel send to the columns; ``log_Gamma`` is not changed."""
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


def squared_distances(rows: Tensor, columns: Tensor) -> Tensor:
    """Return C(i,j) = |rows_i - columns_j|^2 from coordinate differences.

    The matrix-product shortcut of ``cdist`` suffers from cancellation: in float32, once a cloud has spread, its error
    is 0.25 for C_ii = 1.3.
    """
    return torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist").square_()


class Kernel(Protocol):
    """Protocol of a kernel Gamma', which equals Gamma up to a factor per row; the potential q absorbs the factors."""

    @property
    def row_shift(self) -> Tensor:
        """Logarithm of the factor of each row: Gamma(i,j) = exp(row_shift_i) Gamma'(i,j)."""

    def log_apply(self, log_z: Tensor) -> Tensor:
        """Return log(Gamma' z)."""

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        """Return log(Gamma'^T q')."""

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        """Return the logarithms of z o Gamma^T (rho / Gamma z), computed such that no mass is lost."""


class RangedKernel(ABC):
    """A kernel that needs the log domain only if the potentials change much from one call to the next."""

    @abstractmethod
    def limit_change(self, change: float) -> None:
        """Set an upper limit on max|change| of an operation's argument between two consecutive calls.

        The fixed point can provide this limit without waiting for the device again: its stopping criterion reads
        max|change of log z|, and the next changes of log z and log q are not larger, because the map from
        log z to log(Gamma' z) is non-expansive in the maximum norm.
        """


def centred(potential: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a potential in the given precision and the constant that was subtracted before the conversion.

    The subtraction preserves differences between the entries. The constant is 0 if no conversion is needed.
    """
    if potential.dtype == dtype:
        return potential, potential.new_zeros(())
    centre = potential.amax()
    return (potential - centre).to(dtype), centre


class DenseKernel:
    """The matrix Gamma, with two matrix-vector products per round; float32 entries underflow near C = 200 epsilon."""

    def __init__(self, C: Tensor, epsilon: float) -> None:
        self.Gamma = torch.exp(C / (-2 * epsilon))
        self.row_shift = C.new_zeros(C.shape[0])

    def log_apply(self, log_z: Tensor) -> Tensor:
        values, centre = centred(log_z, self.Gamma.dtype)
        return torch.log((self.Gamma @ values.exp()).to(log_z.dtype)) + centre

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        values, centre = centred(log_q, self.Gamma.dtype)
        return torch.log((self.Gamma.T @ values.exp()).to(log_q.dtype)) + centre

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        if log_rho.dtype == self.Gamma.dtype:
            return log_z + self.log_apply_transpose(log_rho - self.log_apply(log_z))
        Gamma, centre = self.Gamma.to(log_rho.dtype), log_z.amax()
        z = (log_z - centre).exp()
        return (log_z - centre) + torch.log(Gamma.T @ (log_rho.exp() / (Gamma @ z)))


class LogKernel:
    """The matrix log Gamma, with the smallest cost of each row subtracted before the division by epsilon.

    Without that subtraction, log q contains C_ii / 2 epsilon, and the rounding error of log q changes the mass: in
    float32 with epsilon = 1e-6, only 0.986 of the mass remains. The smallest cost of a row is on the diagonal unless
    two particles nearly coincide. It is subtracted instead of the diagonal entry, so that no entry of the kernel
    exceeds 1.
    """

    def __init__(self, C: Tensor, epsilon: float) -> None:
        nearest = C.amin(dim=1, keepdim=True)
        self.log_Gamma = (nearest - C) / (2 * epsilon)
        self.row_shift = nearest[:, 0] / (-2 * epsilon)

    def log_apply(self, log_z: Tensor) -> Tensor:
        values, centre = centred(log_z, self.log_Gamma.dtype)
        return torch.logsumexp(self.log_Gamma + values, dim=1).to(log_z.dtype) + centre

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        values, centre = centred(log_q, self.log_Gamma.dtype)
        return torch.logsumexp(self.log_Gamma + values[:, None], dim=0).to(log_q.dtype) + centre

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        # A softmax along each row, not log z + log(Gamma^T q): if z spans many orders of magnitude, the sum of two
        # large logarithms would lose the mass to rounding.
        if log_rho.dtype != self.log_Gamma.dtype:
            transport = MassTransport(log_rho, log_z)
            transport.add(self.log_Gamma, slice(None))
            return transport.log()
        shares = torch.log_softmax(self.log_Gamma + log_z, dim=1)
        return torch.logsumexp(shares + log_rho[:, None], dim=0)
