"""The tanh drift for samples with one feature, with pre-activations and gradients computed without matrix products.

A matrix product with the two rows [1 x] would take longer than the rest of such a step.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_helper, compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential, row_products
from proxlearn.core.fused.vector_math import FAST, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples


@compile_helper(fastmath=FAST, error_model="numpy", forceinline=True)
def _forward_rows(t, theta, rho, x, T, sums):  # type: ignore[no-untyped-def]
    N, n = T.shape
    blocks, r, s = len(sums), sums[t, 0], sums[t, 1]
    r[:] = 0
    s[:] = 0
    for i in range(N * t // blocks, N * (t + 1) // blocks):
        a, b, w, row = theta[i, 0], theta[i, 1], theta[i, 2], T[i]
        a_rho = a * rho[i]
        for m in range(n):
            value = tanh(b + w * x[m])
            row[m] = value
            r[m] += a_rho * value
            s[m] += a * value


@compile_pass(parallel=True)
def forward(theta, rho, x, T, sums):  # type: ignore[no-untyped-def]
    """Compute T = tanh(b + w x), and store block t's contribution to (P^T rho, P^T 1) in sums[t]."""
    for t in prange(len(sums)):
        _forward_rows(np.int64(t), theta, rho, x, T, sums)


# This function is inlined, because a separate one would give different bits in the process that compiles it and in
# processes that load it from the cache.
@compile_helper(fastmath=FAST, error_model="numpy", forceinline=True)
def _backward_rows(t, blocks, T, theta, rho, x, c, d, h, diffusion, noise, inner_c, new):  # type: ignore[no-untyped-def]
    N, n = T.shape
    zero, one = T.dtype.type(0), T.dtype.type(1)
    for i in range(N * t // blocks, N * (t + 1) // blocks):
        row, weight = T[i], rho[i]
        in_c, in_d, in_b, in_w = zero, zero, zero, zero
        for m in range(n):
            value = row[m]
            in_c += value * c[m]
            in_d += value * d[m]
            slope = (c[m] + weight * d[m]) * (one - value * value)
            in_b += slope
            in_w += slope * x[m]
        inner_c[i] = in_c
        factor = h * theta[i, 0]
        new[i, 0] = theta[i, 0] - h * (in_c + weight * in_d) + diffusion * noise[i, 0]
        new[i, 1] = theta[i, 1] - factor * in_b + diffusion * noise[i, 1]
        new[i, 2] = theta[i, 2] - factor * in_w + diffusion * noise[i, 2]


@compile_pass(parallel=True)
def backward(blocks, T, theta, rho, x, c, d, h, diffusion, noise, inner_c, new):  # type: ignore[no-untyped-def]
    """Compute inner_c = T c, and store theta after one Euler-Maruyama step in ``new``."""
    for t in prange(blocks):
        _backward_rows(np.int64(t), blocks, T, theta, rho, x, c, d, h, diffusion, noise, inner_c, new)


class OneFeatureTanhDrift(FusedDrift):
    """A ``TanhDrift`` for samples with one feature, with the same results up to rounding."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        super().__init__(problem, hyper, blocks)
        n, dtype = self.n, self.dtype
        self.T = np.empty((N, n), dtype)
        self.inner_c = np.empty(N, dtype)

    def _prepare(self, samples: Samples) -> None:
        self.x = samples.X[:, 0].contiguous().numpy()

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        sums = self.empty_sums()
        forward(theta.numpy(), rho, self.x, self.T, sums)
        total: np.ndarray = sums.sum(axis=0)
        return total

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        cloud, T, hyper = theta.numpy(), self.T, self.hyper
        c, d = self.cotangent(r, s)
        u = cloud[:, 0] * row_products(T, self._weighted(r)) / self.n if hyper.drift != hyper.prox_potential else None
        new = torch.empty_like(theta)
        steps = (self.h, self.diffusion, noise.numpy(), self.inner_c, new.numpy())
        backward(self.blocks, T, cloud, rho, self.x, c, d, *steps)
        return new, potential(hyper, cloud[:, 0] * self.inner_c, u)
