"""The passes of a tanh neuron with several outputs that run between its five matrix products.

They compute tanh and its gradient. Let T = tanh(w X^T + b), which is N x n, and let a be the N x C output weights. All
quantities that depend on the C outputs are products with T or with a.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential, product, with_ones
from proxlearn.core.fused.vector_math import FAST, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples


@compile_pass(parallel=True, fastmath=FAST)
def forward(Z, blocks):  # type: ignore[no-untyped-def]
    """Replace Z by T = tanh Z."""
    N, n = Z.shape
    for t in prange(blocks):
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            row = Z[i]
            for m in range(n):
                row[m] = tanh(row[m])


@compile_pass(parallel=True, fastmath=FAST)
def backward(T, g, blocks):  # type: ignore[no-untyped-def]
    """Replace g by g o (1 - T o T)."""
    N, n = T.shape
    one = T.dtype.type(1)
    for t in prange(blocks):
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            row, out = T[i], g[i]
            for m in range(n):
                out[m] *= one - row[m] * row[m]


@compile_pass(parallel=True, fastmath=FAST)
def update(theta, grad_a, GX, h, diffusion, noise, new):  # type: ignore[no-untyped-def]
    """Take one Euler-Maruyama step; the gradient is ``grad_a`` for the columns of a and GX for those of b and w."""
    N, p = theta.shape
    C = grad_a.shape[1]
    for i in prange(N):
        for k in range(C):
            new[i, k] = theta[i, k] - h * grad_a[i, k] + diffusion * noise[i, k]
        for k in range(C, p):
            new[i, k] = theta[i, k] - h * GX[i, k - C] + diffusion * noise[i, k]


class TanhOutputsDrift(FusedDrift):
    """The drift of a cloud of tanh neurons with several outputs."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        super().__init__(problem, hyper, blocks)
        X, n = problem.samples.X, self.n
        self.C = len(problem.samples.y)
        self.T, self.g, self.GX = X.new_empty(N, n), X.new_empty(N, n), X.new_empty(N, self.X1.shape[1])

    def _prepare(self, samples: Samples) -> None:
        self.X1t, self.X1 = with_ones(samples)

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        C, T = self.C, self.T
        a, weights = theta[:, :C].contiguous(), torch.from_numpy(rho)[:, None]
        product(theta[:, C:], self.X1t, T)
        forward(T.numpy(), self.blocks)
        # The product is T^T a, because one thread would compute a^T T on some processors.
        return np.stack([product(T.T, part).T.contiguous().numpy() for part in (weights * a, a)])

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        C, T, hyper = self.C, self.T, self.hyper
        a, weights = theta[:, :C].contiguous(), torch.from_numpy(rho)[:, None]
        c, d = (torch.from_numpy(part) for part in self.cotangent(r, s))
        inner = grad_a = product(T, c.T)
        product(a, c, self.g)
        if hyper.drift == "paper":
            grad_a = inner + weights * product(T, d.T)
            self.g.addmm_(weights * a, d)
        backward(T.numpy(), self.g.numpy(), self.blocks)
        u = None
        if hyper.drift != hyper.prox_potential:
            u = ((a * product(T, torch.from_numpy(self._weighted(r)).T)).sum(1) / self.n).numpy()
        product(self.g, self.X1, self.GX)
        new = torch.empty_like(theta)
        steps = (self.h, self.diffusion, noise.numpy(), new.numpy())
        update(theta.numpy(), grad_a.numpy(), self.GX.numpy(), *steps)
        return new, potential(hyper, (a * inner).sum(1).numpy(), u)
