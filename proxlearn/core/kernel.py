"""The Gibbs kernel Gamma = exp(-C / 2 epsilon), accessed through the few operations that the fixed point needs.

The fixed point of Algorithm 1 (proximal.py) uses a kernel through these operations only, on logarithms, and does not
depend on how Gamma is stored. ``DenseKernel`` stores Gamma itself, with the range of its floating-point type, as the
paper does. ``LogKernel`` stores its logarithm and never leaves the range.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from proxlearn.core import options


def squared_distances(rows: Tensor, columns: Tensor) -> Tensor:
    """Return C(i,j) = |rows_i - columns_j|^2 from coordinate differences.

    ``cdist``'s matrix-product shortcut cancels: in float32 it is off by .25 on C_ii = 1.3 once a cloud has spread.
    """
    return torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist").square_()


class Kernel(Protocol):
    """Gamma up to a factor per row, ``exp(row_shift)``, which the fixed point's q absorbs."""

    row_shift: Tensor
    """log of the factor of each row: Gamma(i,j) = exp(row_shift_i) Gamma'(i,j)."""

    def log_apply(self, log_z: Tensor) -> Tensor:
        """Return log(Gamma' z)."""

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        """Return log(Gamma'^T q')."""

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        """Return log(z o Gamma^T (rho / Gamma z)): the mass of each row, distributed along the row without loss."""


class KernelTooLarge(Exception):
    """The step cannot use a neighbour list, and N is too large for an N x N kernel."""

    def __init__(self, N: int, largest: int, crowded: bool) -> None:
        """``largest``: the largest N with an N x N kernel; ``crowded``: whether the list would be too long."""
        cause = "too many neighbours" if crowded else "the potentials exceed the floating-point range"
        super().__init__(f"{cause}: N={N} particles need an N x N kernel")
        self.N, self.largest, self.crowded = N, largest, crowded


class DenseKernel:
    """Gamma as a matrix: two matrix-vector products per round; it underflows where C exceeds about 200 epsilon."""

    def __init__(self, C: Tensor, epsilon: float) -> None:
        self.Gamma = torch.exp(C / (-2 * epsilon))
        self.row_shift = C.new_zeros(C.shape[0])

    def log_apply(self, log_z: Tensor) -> Tensor:
        return torch.log(self.Gamma @ log_z.exp())

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        return torch.log(self.Gamma.T @ log_q.exp())

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        return log_z + self.log_apply_transpose(log_rho - self.log_apply(log_z))


class LogKernel:
    """log Gamma, with the smallest cost of each row subtracted before the division by epsilon.

    Without that subtraction log q carries C_ii / 2 epsilon, and its rounding error loses the mass (a plain float32
    logsumexp keeps .986 of it at epsilon = 1e-6). The smallest cost of a row is its diagonal one, unless two
    particles nearly coincide; then it is the safer choice, because no entry of a row exceeds 1.
    """

    def __init__(self, C: Tensor, epsilon: float) -> None:
        nearest = C.amin(dim=1, keepdim=True)
        self.log_Gamma = (nearest - C) / (2 * epsilon)
        self.row_shift = nearest[:, 0] / (-2 * epsilon)

    def log_apply(self, log_z: Tensor) -> Tensor:
        return torch.logsumexp(self.log_Gamma + log_z, dim=1)

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        return torch.logsumexp(self.log_Gamma + log_q[:, None], dim=0)

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        # A softmax along each row, not log z + log(Gamma^T q): where z spans many orders of magnitude the sum of two
        # large logarithms would lose the mass to rounding.
        shares = torch.log_softmax(self.log_Gamma + log_z, dim=1)
        return torch.logsumexp(shares + log_rho[:, None], dim=0)


def make_kernel(which: options.Kernel, rows: Tensor, columns: Tensor, epsilon: float) -> Kernel:
    """Return the kernel between two clouds; row i belongs to ``rows[i]``."""
    # The eager path does not screen, so ``auto`` is the log kernel here.
    kernel = DenseKernel if which == "dense" else LogKernel
    return kernel(squared_distances(rows, columns), epsilon)


MOST_ROWS = 20_000
"""Largest N for which ``offdiagonal_share`` is computed: its N^2 distances would take longer than many steps."""


def offdiagonal_share(rows: Tensor, columns: Tensor, log_z: Tensor, epsilon: float) -> Tensor:
    """Return the largest share of a particle's mass that the coupling diag(q) Gamma diag(z) sends to other particles.

    The code avoids 1 - (diagonal share): shares far below the rounding unit matter. NaN where there are too many
    particles to compare every pair.
    """
    N = len(rows)
    if N > MOST_ROWS:
        return rows.new_tensor(torch.nan)
    largest = rows.new_tensor(-torch.inf)
    block = max(1, 2**22 // N)
    for first in range(0, N, block):
        kernel = LogKernel(squared_distances(rows[first : first + block], columns), epsilon)
        shares = torch.log_softmax(kernel.log_Gamma + log_z, dim=1)
        shares.diagonal(offset=first).fill_(-torch.inf)
        largest = torch.maximum(largest, torch.logsumexp(shares, dim=1).max())
    return largest.exp()
