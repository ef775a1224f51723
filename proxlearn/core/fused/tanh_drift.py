"""The passes of the tanh neuron between its two matrix products.

The drift of a step consists of a matrix product, ``forward`` (tanh in place, with P^T rho and P^T 1), ``backward`` (P
times the cotangents, and the non-zero rows of G o S, compacted), a matrix product over those rows, and the update.

With the paper's raw features nearly every neuron is saturated: its row of S = 1 - T o T is exactly zero, and so is its
gradient except for a. The second product leaves out such rows, which is exact and removes most of it.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential, with_ones
from proxlearn.core.fused.vector_math import FAST, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples


@compile_pass(parallel=True, fastmath=FAST)
def forward(Z, theta, rho, sums):  # type: ignore[no-untyped-def]
    """Replace Z by T = tanh Z, and store the share of block t in (P^T rho, P^T 1) in sums[t]."""
    N, n = Z.shape
    blocks = sums.shape[0]
    for t in prange(blocks):
        r, s = sums[t, 0], sums[t, 1]
        r[:] = 0
        s[:] = 0
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            row = Z[i]
            a = theta[i, 0]
            a_rho = a * rho[i]
            for m in range(n):
                value = tanh(row[m])
                row[m] = value
                r[m] += a_rho * value
                s[m] += a * value


@compile_pass(parallel=True, fastmath=FAST)
def backward(T, rho, c, d, inner_c, grad_a, rows, counts):  # type: ignore[no-untyped-def]
    """Compute inner_c = T c and grad_a = T c + rho o T d, and replace the unsaturated rows of T by G o S.

    The unsaturated rows are moved to the top of their block; ``rows`` and ``counts[t]`` list those of block t.
    """
    N, n = T.shape
    blocks = counts.shape[0]
    one = T.dtype.type(1)
    for t in prange(blocks):
        first = N * t // blocks
        kept = 0
        for i in range(first, N * (t + 1) // blocks):
            row = T[i]
            in_c = T.dtype.type(0)
            in_d = T.dtype.type(0)
            slope = T.dtype.type(0)
            for m in range(n):
                value = row[m]
                in_c += value * c[m]
                in_d += value * d[m]
                slope += one - value * value
            inner_c[i] = in_c
            grad_a[i] = in_c + rho[i] * in_d
            if slope > 0:
                target = T[first + kept]
                for m in range(n):
                    value = row[m]
                    target[m] = (c[m] + rho[i] * d[m]) * (one - value * value)
                rows[first + kept] = i
                kept += 1
        counts[t] = kept


@compile_pass(parallel=True, fastmath=FAST)
def update(theta, grad_a, GX, rows, counts, h, diffusion, noise, new):  # type: ignore[no-untyped-def]
    """Apply Euler-Maruyama, given the first column of the gradient and the kept rows of the other columns."""
    N, p = theta.shape
    blocks = counts.shape[0]
    for t in prange(blocks):
        first = N * t // blocks
        kept = 0
        for i in range(first, N * (t + 1) // blocks):
            new[i, 0] = theta[i, 0] - h * grad_a[i] + diffusion * noise[i, 0]
            if kept < counts[t] and rows[first + kept] == i:
                factor = h * theta[i, 0]
                for k in range(1, p):
                    new[i, k] = theta[i, k] - factor * GX[first + kept, k - 1] + diffusion * noise[i, k]
                kept += 1
            else:
                for k in range(1, p):
                    new[i, k] = theta[i, k] + diffusion * noise[i, k]


class TanhDrift(FusedDrift):
    """The drift of a cloud of tanh neurons."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        X, n = problem.samples.X, len(problem.samples)
        self.dtype = dtype = X.numpy().dtype
        self.blocks, self.n = blocks, n
        self.risk = problem
        self._prepare(problem.samples)
        self.set_hyper(hyper)
        self.T = X.new_empty(N, n)
        self.GX = X.new_empty(N, self.X1.shape[1])
        self.T_array, self.GX_array = self.T.numpy(), self.GX.numpy()
        self.sums = np.empty((blocks, 2, n), dtype)
        self.inner_c, self.grad_a = np.empty(N, dtype), np.empty(N, dtype)
        self.rows, self.counts = np.empty(N, np.int64), np.empty(blocks, np.int64)

    def _prepare(self, samples: Samples) -> None:
        self.X1t, self.X1 = with_ones(samples)

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        N, T = len(theta), self.T_array
        cloud = theta.numpy()
        torch.mm(theta[:, 1:], self.X1t, out=self.T)
        forward(T, cloud, rho, self.sums)
        r, s = self.sums.sum(axis=0)
        c, d = self.cotangent(r, s)
        u = cloud[:, 0] * (T @ self._weighted(r)) / self.n if self.hyper.drift != self.hyper.prox_potential else None
        backward(T, rho, c, d, self.inner_c, self.grad_a, self.rows, self.counts)
        self._second_product(N)
        new = torch.empty_like(theta)
        update(
            cloud,
            self.grad_a,
            self.GX_array,
            self.rows,
            self.counts,
            self.h,
            self.diffusion,
            noise.numpy(),
            new.numpy(),
        )
        return new, potential(self.hyper, cloud[:, 0] * self.inner_c, u)

    def _second_product(self, N: int) -> None:
        """Compute (G o S) [1 X] for the kept rows, which are at the top of each block."""
        if int(self.counts.sum()) == N:
            torch.mm(self.T, self.X1, out=self.GX)
            return
        for t in range(self.blocks):
            first, kept = N * t // self.blocks, int(self.counts[t])
            if kept:
                torch.mm(self.T[first : first + kept], self.X1, out=self.GX[first : first + kept])
