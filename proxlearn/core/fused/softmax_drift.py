"""The passes of the softmax neuron between its two matrix products: softmax and its gradient, both in place.

Probabilities depend only on differences of logits, and the gradients of a sample's logits add up to zero. The last
class therefore needs no row in either product: its logit is 0 once its weights are subtracted from those of the other
classes, and its gradient is minus the sum of the others. This saves a tenth of both products for the paper's ten
digits.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential, product, row_products
from proxlearn.core.fused.vector_math import FAST, exp
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples


@compile_pass(parallel=True, fastmath=FAST)
def subtract_last(theta, first, W):  # type: ignore[no-untyped-def]
    """Store in W the weights of each class, except for the last one, minus the weights of the last class.

    W has one row per particle and class.
    """
    N, n_x = len(theta), W.shape[1]
    others = len(W) // N
    for i in prange(N):
        last = theta[i, first + others * n_x :]
        for c in range(others):
            own = theta[i, first + c * n_x : first + (c + 1) * n_x]
            for k in range(n_x):
                W[i * others + c, k] = own[k] - last[k]


@compile_pass(parallel=True, fastmath=FAST)
def forward(Z, labels, rho, P, sums):  # type: ignore[no-untyped-def]
    """Replace the logits Z by probabilities, compute P, and store block t's part of (P^T rho, P^T 1) in sums[t]."""
    N, n = P.shape
    others = len(Z) // N
    blocks = sums.shape[0]
    one = Z.dtype.type(1)
    for t in prange(blocks):
        r, s = sums[t, 0], sums[t, 1]
        r[:] = 0
        s[:] = 0
        top = np.empty(n, Z.dtype)
        last = np.empty(n, Z.dtype)
        total = np.empty(n, Z.dtype)
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            rows = Z[i * others : (i + 1) * others]
            top[:] = 0
            for c in range(others):
                for m in range(n):
                    top[m] = max(top[m], rows[c, m])
            for m in range(n):
                last[m] = exp(-top[m])
                total[m] = last[m]
            for c in range(others):
                for m in range(n):
                    value = exp(rows[c, m] - top[m])
                    rows[c, m] = value
                    total[m] += value
            for m in range(n):
                total[m] = one / total[m]
            for c in range(others):
                for m in range(n):
                    rows[c, m] *= total[m]
            for m in range(n):
                value = rows[labels[m], m] if labels[m] < others else last[m] * total[m]
                P[i, m] = value
                r[m] += rho[i] * value
                s[m] += value


@compile_pass(parallel=True, fastmath=FAST)
def backward(Z, labels, P, rho, c, d, inner_c, blocks):  # type: ignore[no-untyped-def]
    """Set inner_c = P c, and replace the probabilities by the gradient G P (delta_label - p) of the logits."""
    N, n = P.shape
    others = len(Z) // N
    for t in prange(blocks):
        g = np.empty(n, Z.dtype)
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            rows = Z[i * others : (i + 1) * others]
            total = Z.dtype.type(0)
            for m in range(n):
                total += P[i, m] * c[m]
                g[m] = (c[m] + rho[i] * d[m]) * P[i, m]
            inner_c[i] = total
            for k in range(others):
                for m in range(n):
                    rows[k, m] *= -g[m]
            for m in range(n):
                if labels[m] < others:
                    rows[labels[m], m] += g[m]


@compile_pass(parallel=True, fastmath=FAST)
def update(theta, gradient, first, h, diffusion, noise, new):  # type: ignore[no-untyped-def]
    """Take one Euler-Maruyama step for the coordinates from ``first`` on.

    ``gradient`` has no rows for the last class, whose gradient is minus the sum of the gradients of the other classes.
    """
    N, size = len(theta), gradient.shape[1]
    others = len(gradient) // N
    for i in prange(N):
        last = np.zeros(size, theta.dtype)
        for c in range(others):
            g, start = gradient[i * others + c], first + c * size
            old, z, to = theta[i, start:], noise[i, start:], new[i, start:]
            for k in range(size):
                last[k] -= g[k]
                to[k] = old[k] - h * g[k] + diffusion * z[k]
        start = first + others * size
        old, z, to = theta[i, start:], noise[i, start:], new[i, start:]
        for k in range(size):
            to[k] = old[k] - h * last[k] + diffusion * z[k]


class SoftmaxDrift(FusedDrift):
    """The drift of a cloud of softmax neurons."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        super().__init__(problem, hyper, blocks)
        X, dtype = problem.samples.X, self.dtype
        n, n_x = X.shape
        coordinates = problem.neuron.coordinates(n_x)
        others = coordinates["w"] // n_x - 1
        self.intercepts = coordinates.get("b", 0)
        self.W, self.gradient = X.new_empty(N * others, n_x), X.new_empty(N * others, n_x)
        self.Z = X.new_empty(N * others, n)
        self.P = np.empty((N, n), dtype)
        self.inner_c = np.empty(N, dtype)

    def _prepare(self, samples: Samples) -> None:
        assert samples.labels is not None, "the softmax neuron needs labelled samples"
        self.labels = samples.labels.numpy()
        self.X, self.Xt = samples.X, samples.X.T.contiguous()

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        first = self.intercepts
        subtract_last(theta.numpy(), first, self.W.numpy())
        product(self.W, self.Xt, self.Z)
        if first:
            self.Z += (theta[:, : first - 1] - theta[:, first - 1 : first]).reshape(-1, 1)
        sums = self.empty_sums()
        forward(self.Z.numpy(), self.labels, rho, self.P, sums)
        total: np.ndarray = sums.sum(axis=0)
        return total

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        first, Z = self.intercepts, self.Z.numpy()
        c, d = self.cotangent(r, s)
        u = row_products(self.P, self._weighted(r)) / self.n if self.hyper.drift != self.hyper.prox_potential else None
        backward(Z, self.labels, self.P, rho, c, d, self.inner_c, self.blocks)
        product(self.Z, self.X, self.gradient)
        new = torch.empty_like(theta)
        steps = (self.h, self.diffusion, noise.numpy(), new.numpy())
        update(theta.numpy(), self.gradient.numpy(), first, *steps)
        if first:
            update(theta.numpy(), self.Z.sum(1, keepdim=True).numpy(), 0, *steps)
        return new, potential(self.hyper, self.inner_c.copy(), u)
