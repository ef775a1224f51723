"""The tanh drift for raw features, which saturate the neurons; entries that cannot have left saturation are skipped.

With features in the hundreds, nearly all of T = tanh([1 X] w) is +-1 and stays the same for many steps, because a
pre-activation moves by at most |w - w_ref| |x_m|. Therefore, each row stores a reference w_ref, a list of the few
*near* samples (which are not saturated or may soon leave saturation), and a *radius*: the distance of w from w_ref
below which no other sample can leave saturation. Within its radius, a row needs only the products with its near
samples; the signs of all other samples are stored, one byte each. Neighbour lists in molecular dynamics work in the
same way.

A step sums over the signs of all saturated entries and over the *pairs* (row, sample) that are not saturated. A row
with more pairs than its list can contain is *dense*: it is computed as a whole, twice, at every step.

The result is exact: the radius accounts for rounding, a pre-activation has the same bits in every pass
(saturated_rows.py), and the pairs depend only on the cloud. The lists affect the cost of a step but never its result.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_helper, compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential, with_ones
from proxlearn.core.fused.saturated_rows import (
    DENSE,
    NEAR,
    add_signs,
    classify_near,
    classify_row,
    list_near,
    near_products,
    products,
)
from proxlearn.core.fused.vector_math import FAST, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples

LARGE = 100.0
"""Median norm of x above which features are considered raw."""
SATURATED = {np.dtype(np.float32): 9.2, np.dtype(np.float64): 19.2}
"""Pre-activation above which tanh is exactly +-1."""
HUGE = 1e30
"""Value of |w|^2 above which sums may overflow; such a row is computed as a whole at every step."""
REACH = 4.0
"""Distance, in step lengths, within which a sample is near. A larger distance gives lists that are valid for longer but
cost more.
"""


def saturates(problem: Risk) -> bool:
    """Predict from the data alone whether the neurons will saturate, so that a resumed run uses the same drift.

    The result is False for a mini-batch.
    """
    lengths = torch.linalg.vector_norm(problem.samples.X, dim=1)
    return not problem.batch and bool(lengths.median() >= LARGE)


@compile_helper(fastmath=FAST, error_model="numpy")
def _forward_rows(t, theta, rho, X1t, X1, metric, per_length, bounds, lists, signs, pairs, sums):  # type: ignore[no-untyped-def]
    saturated, rounding, reach = bounds
    reference, squared_radius, near, near_count = lists
    sample, values, pair_count = pairs
    N, n = signs.shape
    p = reference.shape[1]
    blocks = sums.shape[0]
    zero, one, two = theta.dtype.type(0), theta.dtype.type(1), theta.dtype.type(2)
    first, end = N * t // blocks, N * (t + 1) // blocks
    r, s = sums[t, 0], sums[t, 1]
    r[:] = 0
    s[:] = 0
    stale, count = np.empty(end - first + 3, np.int64), 0
    near_z = np.empty(NEAR, theta.dtype)
    for i in range(first, end):
        moved = zero
        for k in range(p):
            step = theta[i, k + 1] - reference[i, k]
            moved += metric[k] * step * step
        # The comparison is negated, so that NaN counts as having left.
        if not moved <= squared_radius[i]:
            stale[count] = i
            count += 1
        elif near_count[i]:
            near_products(theta[i, 1:], X1, near[i], near_count[i], near_z)
            pair_count[i] = classify_near(near_z, near[i], near_count[i], saturated, signs[i], sample[i], values[i])
    stale[count : count + 3] = first
    Z = np.empty((4, n), theta.dtype)
    for group in range(0, count, 4):
        products(theta, stale[group : group + 4], X1t, Z)
        for j in range(min(4, count - group)):
            i, z = stale[group + j], Z[j]
            square = zero
            for k in range(p):
                square += metric[k] * theta[i, k + 1] * theta[i, k + 1]
            squared_radius[i], near_count[i] = -one, 0
            if square < HUGE:
                # The rounding error of z, both here and in a step that relies on this list, is at most rounding |w|
                # |x|.
                slack = two * rounding * np.sqrt(square)
                listed, next_one = list_near(z, per_length, saturated, reach + slack, near[i])
                if listed >= 0 and next_one > slack:
                    squared_radius[i] = (next_one - slack) ** 2 * (one - 8 * rounding)
                    near_count[i] = listed
                    for k in range(p):
                        reference[i, k] = theta[i, k + 1]
            if squared_radius[i] > 0:
                for m in range(n):
                    signs[i, m] = np.int8(1) if z[m] > 0 else np.int8(-1)
                for place in range(near_count[i]):
                    near_z[place] = z[near[i, place]]
                pair_count[i] = classify_near(near_z, near[i], near_count[i], saturated, signs[i], sample[i], values[i])
                continue
            pair_count[i] = classify_row(z, signs[i], sample[i], values[i])
            if pair_count[i] == DENSE:
                a = theta[i, 0]
                a_rho = a * rho[i]
                for m in range(n):
                    in_r, in_s = r[m] + a_rho * z[m], s[m] + a * z[m]
                    r[m], s[m] = in_r, in_s
    add_signs(theta, rho, signs, first, end, r, s)
    for i in range(first, end):
        for j in range(pair_count[i]):
            m, value = sample[i, j], theta[i, 0] * values[i, j]
            r[m] += value * rho[i]
            s[m] += value


@compile_pass(parallel=True)
def forward(theta, rho, X1t, X1, metric, per_length, bounds, lists, signs, pairs, sums):  # type: ignore[no-untyped-def]
    """Store block t's contribution to (P^T rho, P^T 1) in sums[t], and store each row's signs and pairs, or DENSE.

    Dense rows, signs and pairs are summed one after the other, each in the order of the rows.
    """
    for t in prange(len(sums)):
        _forward_rows(np.int64(t), theta, rho, X1t, X1, metric, per_length, bounds, lists, signs, pairs, sums)


@compile_helper(fastmath=FAST, error_model="numpy")
def _backward_rows(t, theta, rho, X1t, X1, signs, pairs, c, d, e, h, diffusion, noise, inner_c, inner_e, new, blocks):  # type: ignore[no-untyped-def]
    sample, values, pair_count = pairs
    N, n = signs.shape
    p = len(X1t)
    zero, one = theta.dtype.type(0), theta.dtype.type(1)
    first, end = N * t // blocks, N * (t + 1) // blocks
    dense, count = np.empty(end - first + 3, np.int64), 0
    for i in range(first, end):
        for k in range(p + 1):
            new[i, k] = theta[i, k] + diffusion * noise[i, k]
        if pair_count[i] == DENSE:
            dense[count] = i
            count += 1
            continue
        sign = signs[i]
        in_c, in_d, in_e = zero, zero, zero
        for m in range(n):
            value = theta.dtype.type(sign[m])
            in_c += value * c[m]
            in_d += value * d[m]
        for m in range(len(e)):
            in_e += theta.dtype.type(sign[m]) * e[m]
        for j in range(pair_count[i]):
            m, value = sample[i, j], values[i, j]
            in_c += value * c[m]
            in_d += value * d[m]
            if len(e):
                in_e += value * e[m]
            factor = h * theta[i, 0] * (one - value * value) * (c[m] + rho[i] * d[m])
            for k in range(p):
                new[i, k + 1] -= factor * X1[m, k]
        inner_c[i], inner_e[i] = in_c, in_e
        new[i, 0] -= h * (in_c + rho[i] * in_d)
    dense[count : count + 3] = first
    Z = np.empty((4, n), theta.dtype)
    for group in range(0, count, 4):
        products(theta, dense[group : group + 4], X1t, Z)
        for j in range(min(4, count - group)):
            i, z = dense[group + j], Z[j]
            in_c, in_d, in_e = zero, zero, zero
            for m in range(n):
                value = tanh(z[m])
                z[m] = value
                in_c += value * c[m]
                in_d += value * d[m]
            for m in range(len(e)):
                in_e += z[m] * e[m]
            inner_c[i], inner_e[i] = in_c, in_e
            new[i, 0] -= h * (in_c + rho[i] * in_d)
            for m in range(n):
                slope = one - z[m] * z[m]
                if slope > 0:
                    factor = h * theta[i, 0] * slope * (c[m] + rho[i] * d[m])
                    for k in range(p):
                        new[i, k + 1] -= factor * X1[m, k]


@compile_pass(parallel=True)
def backward(theta, rho, X1t, X1, signs, pairs, c, d, e, h, diffusion, noise, inner_c, inner_e, new, blocks):  # type: ignore[no-untyped-def]
    """Compute T c, T e (unless e is empty) and one Euler-Maruyama step; dense rows of T are computed again."""
    for t in prange(blocks):
        _backward_rows(
            np.int64(t), theta, rho, X1t, X1, signs, pairs, c, d, e, h, diffusion, noise, inner_c, inner_e, new, blocks
        )


@lru_cache(maxsize=2)
def _rows_with_ones(samples: Samples) -> np.ndarray:
    """Return the matrix [1 X], which is cached, so that the drifts of all blocks of a cloud use the same array."""
    return with_ones(samples)[0].T.contiguous().numpy()


class SaturatedTanhDrift(FusedDrift):
    """A ``TanhDrift`` for raw features, with the same results up to rounding, in O(N (p + n/4 + NEAR)) memory."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        # _prepare marks the lists as invalid through this array.
        self.squared_radius = np.empty(N, problem.samples.X.numpy().dtype)
        super().__init__(problem, hyper, blocks)
        p, dtype = self.X1.shape[1], self.dtype
        self.saturated = dtype.type(SATURATED[dtype])
        # The rounding error of a sum of p products is (p + 1) units in the last place; it is doubled as a margin.
        self.rounding = dtype.type((p + 1) * np.finfo(dtype).eps)
        self.pair_count = np.zeros(N, np.int32)
        self._allocate(N)
        self.inner_c, self.inner_r = np.empty(N, dtype), np.empty(N, dtype)
        self.nothing = np.empty(0, dtype)

    def _allocate(self, rows: int) -> None:
        """Allocate the lists, signs and pairs for ``rows`` particles: all particles, or 0 to release the memory."""
        # Passes read a list beyond its end, in groups of four, so its entries must be valid.
        near, near_count = np.zeros((rows, NEAR), np.int32), np.zeros(rows, np.int32)
        self.lists = np.zeros((rows, len(self.X1t)), self.dtype), self.squared_radius, near, near_count
        self.signs = np.empty((rows, self.n), np.int8)
        self.pairs = np.zeros((rows, NEAR), np.int32), np.zeros((rows, NEAR), self.dtype), self.pair_count

    def release(self) -> None:
        # Without lists, the next step classifies all rows.
        self.squared_radius[:] = -1
        self._allocate(0)

    def _prepare(self, samples: Samples) -> None:
        # New samples invalidate every list.
        self.squared_radius[:] = -1
        self.X1t, self.X1 = with_ones(samples)[0].numpy(), _rows_with_ones(samples)
        # |<w, x>| <= sqrt(sum g w^2) sqrt(sum x^2 / g) for any g > 0. This g, which is large for large features, makes
        # the first factor a fifth of the Euclidean one for WDBC's raw columns, with the same second factor.
        directions = self.X1 / np.linalg.norm(self.X1.astype(np.float64), axis=1, keepdims=True)
        metric = np.maximum(np.sqrt(np.square(directions).mean(axis=0)), 1e-12)
        lengths = np.sqrt((np.square(self.X1.astype(np.float64)) / metric).sum(axis=1))
        # The value is a bound, so it is rounded down.
        self.per_length = ((1 - 1e-6) / lengths).astype(self.dtype)
        self.metric = metric.astype(self.dtype)
        # The length of a step whose coordinates are standard normal.
        self.stride = self.dtype.type(np.sqrt(metric.sum()))

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        if len(self.signs) < len(theta):
            self._allocate(len(theta))
        sums = self.empty_sums()
        forward(
            theta.numpy(),
            rho,
            self.X1t,
            self.X1,
            self.metric,
            self.per_length,
            (self.saturated, self.rounding, self.dtype.type(REACH) * self.diffusion * self.stride),
            self.lists,
            self.signs,
            self.pairs,
            sums,
        )
        total: np.ndarray = sums.sum(axis=0)
        return total

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        cloud, hyper = theta.numpy(), self.hyper
        c, d = self.cotangent(r, s)
        both = hyper.drift != hyper.prox_potential
        new = torch.empty_like(theta)
        backward(
            cloud,
            rho,
            self.X1t,
            self.X1,
            self.signs,
            self.pairs,
            c,
            d,
            self._weighted(r) if both else self.nothing,
            self.h,
            self.diffusion,
            noise.numpy(),
            self.inner_c,
            self.inner_r,
            new.numpy(),
            self.blocks,
        )
        u = cloud[:, 0] * self.inner_r / self.n if both else None
        return new, potential(hyper, cloud[:, 0] * self.inner_c, u)
