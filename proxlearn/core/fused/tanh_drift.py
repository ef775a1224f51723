"""The passes of the tanh neuron between its two matrix products.

The drift of a step consists of a matrix product, ``forward`` (tanh in place, with P^T rho and P^T 1), ``backward`` (P
times the cotangents, and the non-zero rows of G o S), a matrix product over those rows, and the update.

With the paper's raw features, nearly every neuron is saturated: its row of S = 1 - T o T is exactly zero, and so is its
gradient with respect to b and w. The second product omits such rows, which is exact and removes most of the work.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_helper, compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential, product, row_products, with_ones
from proxlearn.core.fused.vector_math import FAST, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples


@compile_helper(fastmath=FAST, error_model="numpy")
def _forward_rows(first, last, Z, theta, rho, r, s):  # type: ignore[no-untyped-def]
    n = Z.shape[1]
    r[:] = 0
    s[:] = 0
    for i in range(first, last):
        row = Z[i]
        a = theta[i, 0]
        a_rho = a * rho[i]
        for m in range(n):
            value = tanh(row[m])
            row[m] = value
            r[m] += a_rho * value
            s[m] += a * value


@compile_pass(parallel=True)
def forward(Z, theta, rho, sums):  # type: ignore[no-untyped-def]
    """Replace Z by T = tanh Z, and store block t's contribution to (P^T rho, P^T 1) in sums[t]."""
    N, blocks = len(Z), len(sums)
    for t in prange(blocks):
        _forward_rows(N * t // blocks, N * (t + 1) // blocks, Z, theta, rho, sums[t, 0], sums[t, 1])


@compile_helper(fastmath=FAST, error_model="numpy")
def _backward_rows(first, last, T, rho, c, d, inner_c, grad_a, active):  # type: ignore[no-untyped-def]
    n = T.shape[1]
    zero, one = T.dtype.type(0), T.dtype.type(1)
    for i in range(first, last):
        row = T[i]
        in_c, in_d, slope = zero, zero, zero
        for m in range(n):
            value = row[m]
            in_c += value * c[m]
            in_d += value * d[m]
            slope += one - value * value
        inner_c[i] = in_c
        grad_a[i] = in_c + rho[i] * in_d
        active[i] = slope > 0
        if slope > 0:
            for m in range(n):
                value = row[m]
                row[m] = (c[m] + rho[i] * d[m]) * (one - value * value)


@compile_pass(parallel=True)
def backward(T, rho, c, d, inner_c, grad_a, active, blocks):  # type: ignore[no-untyped-def]
    """Compute inner_c = T c and grad_a = T c + rho o T d, and replace the unsaturated rows of T by G o S.

    ``active`` becomes the mask of the unsaturated rows.
    """
    N = len(T)
    for t in prange(blocks):
        _backward_rows(N * t // blocks, N * (t + 1) // blocks, T, rho, c, d, inner_c, grad_a, active)


@compile_helper(fastmath=FAST, error_model="numpy")
def _update_rows(first, last, theta, grad_a, GX, places, h, diffusion, noise, new):  # type: ignore[no-untyped-def]
    p = theta.shape[1]
    for i in range(first, last):
        new[i, 0] = theta[i, 0] - h * grad_a[i] + diffusion * noise[i, 0]
        if places[i] >= 0:
            factor, gradient = h * theta[i, 0], GX[places[i]]
            for k in range(1, p):
                new[i, k] = theta[i, k] - factor * gradient[k - 1] + diffusion * noise[i, k]
        else:
            for k in range(1, p):
                new[i, k] = theta[i, k] + diffusion * noise[i, k]


@compile_pass(parallel=True)
def update(theta, grad_a, GX, places, h, diffusion, noise, new, blocks):  # type: ignore[no-untyped-def]
    """Take one Euler-Maruyama step.

    ``grad_a`` is the first column of the gradient. In row i, the other columns are theta[i, 0] * GX[places[i]], or zero
    if places[i] is negative (a saturated neuron).
    """
    N = len(theta)
    for t in prange(blocks):
        first, last = N * t // blocks, N * (t + 1) // blocks
        _update_rows(first, last, theta, grad_a, GX, places, h, diffusion, noise, new)


class TanhDrift(FusedDrift):
    """The drift of a cloud of tanh neurons."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        super().__init__(problem, hyper, blocks)
        X, n, dtype = problem.samples.X, self.n, self.dtype
        self.T = X.new_empty(N, n)
        self.GX = X.new_empty(N, self.X1.shape[1])
        self.T_array, self.GX_array = self.T.numpy(), self.GX.numpy()
        self.inner_c, self.grad_a = np.empty(N, dtype), np.empty(N, dtype)
        self.active, self.all_places = np.empty(N, np.bool_), np.arange(N)

    def _prepare(self, samples: Samples) -> None:
        self.X1t, self.X1 = with_ones(samples)

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        product(theta[:, 1:], self.X1t, self.T)
        sums = self.empty_sums()
        forward(self.T_array, theta.numpy(), rho, sums)
        total: np.ndarray = sums.sum(axis=0)
        return total

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        cloud, T = theta.numpy(), self.T_array
        c, d = self.cotangent(r, s)
        u = None
        if self.hyper.drift != self.hyper.prox_potential:
            u = cloud[:, 0] * row_products(T, self._weighted(r)) / self.n
        backward(T, rho, c, d, self.inner_c, self.grad_a, self.active, self.blocks)
        places = self._second_product()
        new = torch.empty_like(theta)
        steps = (self.h, self.diffusion, noise.numpy(), new.numpy())
        update(cloud, self.grad_a, self.GX_array, places, *steps, self.blocks)
        return new, potential(self.hyper, cloud[:, 0] * self.inner_c, u)

    def _second_product(self) -> np.ndarray:
        """Compute (G o S) [1 X] for the active rows; return each particle's row in the product (-1 if omitted)."""
        rows = np.flatnonzero(self.active)
        if 2 * len(rows) > len(self.active):
            # Multiplying rows of zeros, whose gradient is zero, costs less than copying the other rows.
            self.T_array[~self.active] = 0
            product(self.T, self.X1, self.GX)
            return self.all_places
        product(self.T[torch.from_numpy(rows)], self.X1, self.GX[: len(rows)])
        places = np.full(len(self.active), -1)
        places[rows] = np.arange(len(rows))
        return places
