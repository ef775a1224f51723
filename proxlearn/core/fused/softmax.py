"""The softmax neuron's passes between its two matrix products: softmax in place, and the way back in place."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from proxlearn.core.fused.functions import FAST, exp
from proxlearn.core.fused.potentials import FusedDrift, cotangent, potential
from proxlearn.core.problem import Problem, Samples
from proxlearn.core.recursion import Hyper


@njit(parallel=True, fastmath=FAST, cache=True)
def forward(Z, labels, rho, P, sums):  # type: ignore[no-untyped-def]
    """Logits -> probabilities in place, class by class; P, and block t's share of (P^T rho, P^T 1)."""
    N, n = P.shape
    C = len(Z) // N
    blocks = sums.shape[0]
    for t in prange(blocks):
        r, s = sums[t, 0], sums[t, 1]
        r[:] = 0
        s[:] = 0
        top = np.empty(n, Z.dtype)
        total = np.empty(n, Z.dtype)
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            rows = Z[i * C : (i + 1) * C]
            top[:] = rows[0]
            for c in range(1, C):
                for m in range(n):
                    top[m] = max(top[m], rows[c, m])
            total[:] = 0
            for c in range(C):
                for m in range(n):
                    value = exp(rows[c, m] - top[m])
                    rows[c, m] = value
                    total[m] += value
            for m in range(n):
                total[m] = Z.dtype.type(1) / total[m]
            for c in range(C):
                for m in range(n):
                    rows[c, m] *= total[m]
            for m in range(n):
                value = rows[labels[m], m]
                P[i, m] = value
                r[m] += rho[i] * value
                s[m] += value


@njit(parallel=True, fastmath=FAST, cache=True)
def backward(Z, labels, P, rho, c, d, inner_c, blocks):  # type: ignore[no-untyped-def]
    """inner_c = P c; probabilities -> G P (delta_label - p) in place, which is the gradient with respect to the
    logits."""
    N, n = P.shape
    C = len(Z) // N
    for t in prange(blocks):
        g = np.empty(n, Z.dtype)
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            rows = Z[i * C : (i + 1) * C]
            total = Z.dtype.type(0)
            for m in range(n):
                total += P[i, m] * c[m]
                g[m] = (c[m] + rho[i] * d[m]) * P[i, m]
            inner_c[i] = total
            for k in range(C):
                for m in range(n):
                    rows[k, m] *= -g[m]
            for m in range(n):
                rows[labels[m], m] += g[m]


@njit(parallel=True, fastmath=FAST, cache=True)
def update(theta, gradient, first, h, diffusion, noise, new):  # type: ignore[no-untyped-def]
    """Euler-Maruyama for the coordinates from ``first`` on; ``gradient`` holds theirs, row by row."""
    N, p = theta.shape
    for i in prange(N):
        for k in range(first, p):
            new[i, k] = theta[i, k] - h * gradient[i, k - first] + diffusion * noise[i, k]


class SoftmaxDrift(FusedDrift):
    """A cloud of softmax neurons."""

    def __init__(self, problem: Problem, hyper: Hyper, N: int, blocks: int) -> None:
        X = problem.samples.X
        n, n_x = X.shape
        blocks_of = problem.neuron.coordinates(n_x)
        classes = blocks_of["w"] // n_x
        self.dtype = dtype = X.numpy().dtype
        self.blocks, self.n = blocks, n
        self.use(problem.samples)
        self.at(hyper)
        self.intercepts = blocks_of.get("b", 0)
        self.Z = X.new_empty(N * classes, n)
        self.gradient = X.new_empty(N * classes, n_x)
        self.P = np.empty((N, n), dtype)
        self.sums = np.empty((blocks, 2, n), dtype)
        self.inner_c = np.empty(N, dtype)

    def use(self, samples: Samples) -> None:
        assert samples.labels is not None, "the softmax neuron answers for labelled samples"
        self.y, self.labels = samples.y.numpy(), samples.labels.numpy()
        self.X, self.Xt = samples.X, samples.X.T.contiguous()

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        N, first, Z = len(theta), self.intercepts, self.Z.numpy()
        torch.mm(theta[:, first:].reshape(-1, self.X.shape[1]), self.Xt, out=self.Z)
        if first:
            self.Z += theta[:, :first].reshape(-1, 1)
        forward(Z, self.labels, rho, self.P, self.sums)
        r, s = self.sums.sum(axis=0)
        c, d = cotangent(self.hyper, r, s, self.y)
        u = self.P @ r / self.n if self.hyper.drift != self.hyper.prox_potential else None
        backward(Z, self.labels, self.P, rho, c, d, self.inner_c, self.blocks)
        torch.mm(self.Z, self.X, out=self.gradient)
        new = torch.empty_like(theta)
        steps = (self.h, self.diffusion, noise.numpy(), new.numpy())
        update(theta.numpy(), self.gradient.view(N, -1).numpy(), first, *steps)
        if first:
            grad_b = self.Z.sum(1).view(N, -1)
            new[:, :first] = theta[:, :first] - self.hyper.h * grad_b + self.hyper.diffusion * noise[:, :first]
        return new, potential(self.hyper, self.inner_c.copy(), u)
