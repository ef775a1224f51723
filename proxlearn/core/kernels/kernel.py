"""The Gibbs kernel Gamma = exp(-C / 2 epsilon), accessed through the few operations that the fixed point needs.

The fixed point of Algorithm 1 (proximal.py) uses a kernel through these operations only, on logarithms, and does not
depend on how Gamma is stored. Distances and exponentials have the precision of the locations. The potentials and the
weights may have a higher precision; the mass is then distributed in that precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Kernel", "RangedKernel", "centred", "squared_distances"]


def squared_distances(rows: Tensor, columns: Tensor) -> Tensor:
    """Return C(i,j) = |rows_i - columns_j|^2 from coordinate differences.

    The matrix-product shortcut of ``cdist`` suffers from cancellation: in float32, once a cloud has spread, its error
    is 0.25 for C_ii = 1.3.
    """
    return torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist").square_()


class Kernel(Protocol):
    """The kernel Gamma up to a factor ``exp(row_shift)`` per row, which the q of the fixed point absorbs."""

    @property
    def row_shift(self) -> Tensor:
        """Logarithm of the factor of each row: Gamma(i,j) = exp(row_shift_i) Gamma'(i,j)."""

    def log_apply(self, log_z: Tensor) -> Tensor:
        """Return log(Gamma' z)."""

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        """Return log(Gamma'^T q')."""

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        """Return the logarithms of z o Gamma^T (rho / Gamma z): each row distributes its mass rho without loss."""


class RangedKernel(ABC):
    """A kernel whose floating-point range depends on how far the potentials move from one call to the next."""

    @abstractmethod
    def limit_change(self, change: float) -> None:
        """Set an upper limit on max|change| of each operation's argument between consecutive calls.

        The fixed point can provide this limit without waiting for the device again: its criterion reads max|change of
        log z|, and neither the next log z nor log q moves further, because log Gamma' exp is non-expansive in the
        maximum norm.
        """


def centred(potential: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a potential in the given precision, and the constant that was subtracted to preserve its differences.

    Nothing is subtracted if the potential already has that precision.
    """
    if potential.dtype == dtype:
        return potential, potential.new_zeros(())
    centre = potential.amax()
    return (potential - centre).to(dtype), centre
