"""Selection of the kernel of a step according to the option ``kernel``, the device and the free memory."""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.core import options
from proxlearn.core.kernels import keops
from proxlearn.core.kernels.kernel import DenseKernel, Kernel, LogKernel, squared_distances
from proxlearn.core.kernels.tiled import TiledAbsorbedKernel, TiledLogKernel, fits_in_memory, make_tiling
from proxlearn.memory import kernel_bytes

__all__ = ["make_kernel", "offdiagonal_share"]

WHOLE_N = 2**12
"""Largest N for which the log kernel is a single matrix; for more particles, it is divided into tiles, which are stored
if the memory suffices.
"""
ENTRIES_AT_ONCE = 2**20
"""Maximum number of entries of the kernel that ``offdiagonal_share`` computes at once; more would use more memory
without saving time.
"""
MOST_PAIRS = 2**24
"""Maximum number of pairs that ``offdiagonal_share`` compares; comparing more would take as long as many steps."""


def make_kernel(which: options.Kernel, rows: Tensor, columns: Tensor, epsilon: float) -> Kernel:
    """Return the kernel between two clouds of N particles; row i belongs to ``rows[i]``.

    All pairs are computed, so ``auto`` selects the log kernel. If the log kernel is divided into tiles, the tiles
    absorb the potentials with ``auto``, as long as the floating-point range allows it, but not with ``log``. On a GPU,
    a formula for pykeops replaces the tiles if pykeops can be used.
    """
    N, device = len(rows), rows.device
    if which == "dense":
        return DenseKernel(squared_distances(rows, columns), epsilon)
    if N <= WHOLE_N and fits_in_memory(kernel_bytes(N, rows.itemsize), device):
        return LogKernel(squared_distances(rows, columns), epsilon)
    formula = keops.try_kernel(rows, columns, epsilon)
    if formula is not None:
        return formula
    if which == "log":
        return TiledLogKernel(rows, columns, epsilon, make_tiling(N, N, device, rows.itemsize * N**2))
    # The products with Gamma and with its transpose need one matrix each.
    return TiledAbsorbedKernel(rows, columns, epsilon, make_tiling(N, N, device, 2 * rows.itemsize * N**2))


def offdiagonal_share(rows: Tensor, columns: Tensor, log_z: Tensor, epsilon: float) -> Tensor:
    """Return the largest share of a particle's mass that the coupling diag(q) Gamma diag(z) sends to other particles.

    It is not computed as 1 - (diagonal share), because shares far below the rounding unit matter. For more than 4096
    particles, only 2^24 / N of them, at equal intervals of their indices, are compared with all others; the result is
    then a lower bound.
    """
    N = len(rows)
    # Rounded up, so that at most MOST_PAIRS pairs are compared.
    senders = torch.arange(0, N, -(-(N**2) // MOST_PAIRS), device=rows.device)
    largest = log_z.new_tensor(-torch.inf)
    for part in torch.split(senders, max(1, ENTRIES_AT_ONCE // N)):
        kernel = LogKernel(squared_distances(rows[part], columns), epsilon)
        shares = torch.log_softmax(kernel.log_Gamma + log_z, dim=1)
        shares.scatter_(1, part[:, None], -torch.inf)
        largest = torch.maximum(largest, torch.logsumexp(shares, dim=1).max())
    return largest.exp()
