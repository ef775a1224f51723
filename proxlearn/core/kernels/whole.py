"""Kernels that are stored as N x N matrices: Gamma itself, and its logarithm.

``DenseKernel`` stores Gamma, as the paper does, and is limited by the range of its floating-point type. ``LogKernel``
stores the logarithm and never leaves that range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.core.kernels.kernel import centred
from proxlearn.core.kernels.sums import MassTransport

__all__ = ["DenseKernel", "LogKernel"]


class DenseKernel:
    """The matrix Gamma, with two matrix-vector products per round; it underflows if C exceeds about 200 epsilon."""

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

    Without that subtraction, log q contains C_ii / 2 epsilon, and its rounding error changes the mass: a plain float32
    logsumexp keeps 0.986 of it at epsilon = 1e-6. The smallest cost of a row is on the diagonal unless two particles
    nearly coincide; in that case it is the safer choice, because no entry of the row then exceeds 1.
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
