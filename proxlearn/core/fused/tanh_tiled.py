"""The tanh drift for clouds too large for the cache: one tile at a time, with O(tile x n) memory and one byte per sign.

The backward pass needs P^T rho, so T has to be stored or computed again. A saturated row of T consists of +-1, so its
signs are stored, one byte each, which takes a quarter of the memory traffic. Only the unsaturated rows are computed
again.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential, product, row_products, with_ones
from proxlearn.core.fused.tanh_drift import backward, forward
from proxlearn.core.fused.vector_math import FAST, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples

TILE = 1024


@compile_pass(parallel=True, fastmath=FAST)
def forward_signs(Z, theta, rho, sums, signs, active):  # type: ignore[no-untyped-def]
    """Replace Z by T = tanh Z, add the contributions to ``sums``, and store the signs of the saturated rows of T."""
    N, n = Z.shape
    blocks = sums.shape[0]
    one = Z.dtype.type(1)
    for t in prange(blocks):
        r, s = sums[t, 0], sums[t, 1]
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            row, sign = Z[i], signs[i]
            a = theta[i, 0]
            a_rho = a * rho[i]
            slope = Z.dtype.type(0)
            for m in range(n):
                value = tanh(row[m])
                row[m] = value
                r[m] += a_rho * value
                s[m] += a * value
                slope += one - value * value
            active[i] = slope > 0
            if slope == 0:
                for m in range(n):
                    sign[m] = np.int8(row[m])


@compile_pass(parallel=True, fastmath=FAST)
def inner_of_signs(signs, active, rho, c, d, inner_c, grad_a, blocks):  # type: ignore[no-untyped-def]
    """Compute T c and T c + rho o T d for the saturated rows."""
    N, n = signs.shape
    for t in prange(blocks):
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            if not active[i]:
                sign = signs[i]
                in_c = c.dtype.type(0)
                in_d = c.dtype.type(0)
                for m in range(n):
                    value = c.dtype.type(sign[m])
                    in_c += value * c[m]
                    in_d += value * d[m]
                inner_c[i] = in_c
                grad_a[i] = in_c + rho[i] * in_d


@compile_pass(parallel=True, fastmath=FAST)
def drift_and_noise(theta, grad_a, h, diffusion, noise, new, blocks):  # type: ignore[no-untyped-def]
    """Take one Euler-Maruyama step without the gradient with respect to b and w, which the caller subtracts later."""
    N, p = theta.shape
    for t in prange(blocks):
        for i in range(N * t // blocks, N * (t + 1) // blocks):
            for k in range(p):
                new[i, k] = theta[i, k] + diffusion * noise[i, k]
            new[i, 0] -= h * grad_a[i]


class TiledTanhDrift(FusedDrift):
    """A ``TanhDrift`` for large clouds, with the same results up to rounding."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        super().__init__(problem, hyper, blocks)
        n, dtype = self.n, self.dtype
        self.Z = problem.samples.X.new_empty(min(TILE, N), n)
        self.signs, self.active = np.empty((N, n), np.int8), np.empty(N, np.bool_)
        self.inner_c, self.grad_a = np.empty(N, dtype), np.empty(N, dtype)

    def _prepare(self, samples: Samples) -> None:
        self.X1t, self.X1 = with_ones(samples)

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        cloud, N = theta.numpy(), len(theta)
        sums = np.zeros((self.blocks, 2, self.n), rho.dtype)
        for first in range(0, N, TILE):
            tile = slice(first, min(first + TILE, N))
            Z = self._product(theta[tile])
            forward_signs(Z.numpy(), cloud[tile], rho[tile], sums, self.signs[tile], self.active[tile])
        total: np.ndarray = sums.sum(axis=0)
        return total

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        cloud, N = theta.numpy(), len(theta)
        c, d = self.cotangent(r, s)
        inner_of_signs(self.signs, self.active, rho, c, d, self.inner_c, self.grad_a, self.blocks)
        u = np.empty(N, rho.dtype) if self.hyper.drift != self.hyper.prox_potential else None
        if u is not None:
            r = self._weighted(r)
            inner_of_signs(self.signs, self.active, rho, r, r, u, np.empty_like(u), self.blocks)
        unsaturated = np.flatnonzero(self.active)
        gradients = [self._backward_rows(theta, rho, c, d, r, u, rows) for rows in _tiles(unsaturated)]
        new = torch.empty_like(theta)
        drift_and_noise(cloud, self.grad_a, self.h, self.diffusion, noise.numpy(), new.numpy(), self.blocks)
        for rows, gradient in zip(_tiles(unsaturated), gradients, strict=True):
            new.numpy()[rows, 1:] -= self.h * gradient
        if u is not None:
            u = u * cloud[:, 0] / self.n
        return new, potential(self.hyper, cloud[:, 0] * self.inner_c, u)

    def _product(self, theta: Tensor) -> Tensor:
        return product(theta[:, 1:], self.X1t, self.Z[: len(theta)])

    def _backward_rows(
        self,
        theta: Tensor,
        rho: np.ndarray,
        c: np.ndarray,
        d: np.ndarray,
        r: np.ndarray,
        u: np.ndarray | None,
        rows: np.ndarray,
    ) -> np.ndarray:
        """Return the gradient with respect to b and w, a o (G o S) [1 X], of the given unsaturated rows.

        Store ``inner_c``, ``grad_a`` and, if it is given, ``u`` for these rows.
        """
        points, weights, count = theta[torch.from_numpy(rows)], rho[rows], len(rows)
        Z = self._product(points)
        forward(Z.numpy(), points.numpy(), weights, np.empty((self.blocks, 2, self.n), rho.dtype))
        if u is not None:
            u[rows] = row_products(Z.numpy(), r)
        inner_c, grad_a = np.empty(count, rho.dtype), np.empty(count, rho.dtype)
        active = np.empty(count, np.bool_)
        backward(Z.numpy(), weights, c, d, inner_c, grad_a, active, self.blocks)
        self.inner_c[rows], self.grad_a[rows] = inner_c, grad_a
        gradient: np.ndarray = product(Z, self.X1).numpy()[:, : len(self.X1t)] * points.numpy()[:, :1]
        # A product with a different set of rows may differ in the last bits, so that a row now counts as saturated and
        # holds T.
        gradient[~active] = 0
        return gradient


def _tiles(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[first : first + TILE] for first in range(0, len(rows), TILE)]
