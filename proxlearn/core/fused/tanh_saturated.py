"""The tanh drift of raw features, whose neurons saturate: what is known to be far out is not computed.

With features in the hundreds nearly all of T = tanh([1 X] w) is +-1, and stays the same for many steps: a
pre-activation moves by at most |w - w_ref| |x_m|. So each row keeps a reference w_ref, a list of the few samples that
are *near* (not saturated, or soon to be), and its *room*: how far w may go from there before any other sample could
come out of saturation. Within its room a row costs the products with its near samples; of all others the signs are
kept, a byte each. Molecular dynamics keeps its neighbour lists the same way.

A step's sums are over the signs of everything that is saturated, and over the *pairs* (row, sample) that are not. A row
with more pairs than its list holds is *dense*: computed whole, twice, at every step.

It is exact: rounding is counted in the room; a pre-activation has the same bits however it is computed (hence no matrix
product here); and what is a pair is up to the cloud alone. So what a step remembers changes its cost, never its result.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, cotangent, potential, with_ones
from proxlearn.core.fused.vector_math import FAST, from_sortable_int, sortable_int, tanh
from proxlearn.core.hyper import Hyper
from proxlearn.core.problem import Problem
from proxlearn.core.samples import Samples

LARGE = 100.0
"""Median length of x from which on features are called raw."""
SATURATED = {np.dtype(np.float32): 9.2, np.dtype(np.float64): 19.2}
"""Where tanh is exactly +-1."""
IN_ORDER = FAST - {"reassoc"}
"""Sums as they are written: a row's bits must not depend on its company."""
HUGE = 1e30
"""|w|^2 beyond which sums may overflow: such a row is computed at every step."""
NEAR = 32
"""Samples that a row's list holds."""
REACH = 4.0
"""Steps' lengths within which a sample is near: a longer list lasts for longer and costs more."""
TRIES = 4
"""To draw up a list, each with half the reach of the one before, until it holds all that is near."""
DENSE = -1
"""In place of a number of pairs."""


def saturates(problem: Problem) -> bool:
    """Whether its neurons will saturate, told by the data alone: a run that is resumed must be told the same."""
    lengths = torch.linalg.vector_norm(problem.samples.X, dim=1)
    return not problem.batch and bool(lengths.median() >= LARGE)


@compile_pass(fastmath=IN_ORDER)
def products(theta, rows, X1t, Z):  # type: ignore[no-untyped-def]
    """Z = [1 X] w for four rows of theta, four features at a time: fetching X1t and Z takes longer than arithmetic.

    All four sums before the first is stored: after a store the compiler fetches the features again.
    """
    p, n = X1t.shape
    a, b, c, d = theta[rows[0], 1:], theta[rows[1], 1:], theta[rows[2], 1:], theta[rows[3], 1:]
    za, zb, zc, zd = Z[0], Z[1], Z[2], Z[3]
    Z[:] = 0
    whole = p - p % 4
    for k in range(0, whole, 4):
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
        c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
        d0, d1, d2, d3 = d[k], d[k + 1], d[k + 2], d[k + 3]
        x0, x1, x2, x3 = X1t[k], X1t[k + 1], X1t[k + 2], X1t[k + 3]
        for m in range(n):
            va = za[m] + a0 * x0[m] + a1 * x1[m] + a2 * x2[m] + a3 * x3[m]
            vb = zb[m] + b0 * x0[m] + b1 * x1[m] + b2 * x2[m] + b3 * x3[m]
            vc = zc[m] + c0 * x0[m] + c1 * x1[m] + c2 * x2[m] + c3 * x3[m]
            vd = zd[m] + d0 * x0[m] + d1 * x1[m] + d2 * x2[m] + d3 * x3[m]
            za[m], zb[m], zc[m], zd[m] = va, vb, vc, vd
    for k in range(whole, p):
        x0 = X1t[k]
        for m in range(n):
            za[m] = za[m] + a[k] * x0[m]
            zb[m] = zb[m] + b[k] * x0[m]
            zc[m] = zc[m] + c[k] * x0[m]
            zd[m] = zd[m] + d[k] * x0[m]


@compile_pass(fastmath=IN_ORDER)
def some_products(w, X1, near, count, z):  # type: ignore[no-untyped-def]
    """z[j] = <w, (1, x)> for the near samples: the same chain of operations as in ``products``, four side by side."""
    for j in range(0, count, 4):
        a, b, c, d = X1[near[j]], X1[near[j + 1]], X1[near[j + 2]], X1[near[j + 3]]
        za = zb = zc = zd = w.dtype.type(0)
        for k in range(len(w)):
            za = za + w[k] * a[k]
            zb = zb + w[k] * b[k]
            zc = zc + w[k] * c[k]
            zd = zd + w[k] * d[k]
        z[j], z[j + 1], z[j + 2], z[j + 3] = za, zb, zc, zd


@compile_pass(fastmath=FAST)
def look_around(z, per_length, saturated, reach, near):  # type: ignore[no-untyped-def]
    """The samples within ``reach`` of coming out of saturation, how many there are, and how far the next one is.

    As many as ``near`` holds; where there are more, half the reach, and so on. -1 where that does not help.
    """
    inf = z.dtype.type(np.inf)
    for _ in range(TRIES):
        count, next_one = 0, sortable_int(inf)
        for m in range(len(z)):
            far = (abs(z[m]) - saturated) * per_length[m]
            count += far < reach
            next_one = min(next_one, sortable_int(inf if far < reach else far))
        if count <= NEAR:
            if count:
                place = 0
                for m in range(len(z)):
                    if (abs(z[m]) - saturated) * per_length[m] < reach:
                        near[place] = m
                        place += 1
            return count, from_sortable_int(next_one)
        reach *= z.dtype.type(0.5)
    return -1, inf


@compile_pass(fastmath=IN_ORDER, error_model="numpy")
def classify_near(z, near, many, saturated, signs, sample, values):  # type: ignore[no-untyped-def]
    """tanh of the near samples: a sign where it is +-1, else 0 and a pair. How many pairs there are."""
    one = z.dtype.type(1)
    found = 0
    for j in range(many):
        m = near[j]
        signs[m] = np.int8(1) if z[j] > 0 else np.int8(-1)
        # Few of those that are near.
        if abs(z[j]) < saturated:
            value = tanh(z[j])
            if one - value * value > 0:
                signs[m] = 0
                sample[found], values[found] = m, value
                found += 1
    return found


@compile_pass(fastmath=IN_ORDER, error_model="numpy")
def classify_all_near(z, signs, sample, values):  # type: ignore[no-untyped-def]
    """The same for a whole row, whose z becomes tanh z. DENSE where the pairs are too many: then no sign is kept."""
    one = z.dtype.type(1)
    number = 0
    # Sixteen at a time, as long as no division is checked for zero: hence numpy's model of errors.
    for m in range(len(z)):
        value = tanh(z[m])
        z[m] = value
        # As it stands, so that NaN is a pair, and spreads.
        number += not one - value * value <= 0
    if number > NEAR:
        signs[:] = 0
        return DENSE
    for m in range(len(z)):
        # By comparisons: what a NaN becomes as a whole number differs between processors.
        signs[m] = np.int8(z[m] == one) - np.int8(z[m] == -one)
    if number:
        found = 0
        for m in range(len(z)):
            # In whole numbers, which the compiler is quicker to compare: what is no sign is a pair.
            if signs[m] == 0 and found < number:
                sample[found], values[found] = m, z[m]
                found += 1
    return number


@compile_pass(fastmath=FAST)
def add_signs(theta, rho, signs, first, end, r, s):  # type: ignore[no-untyped-def]
    """The rows' signs times a rho to r, times a to s; four rows at a time, beyond the last one with weight zero."""
    zero = theta.dtype.type(0)
    of_r, of_s = np.empty(4, theta.dtype), np.empty(4, theta.dtype)
    for group in range(first, end, 4):
        for j in range(4):
            i = min(group + j, end - 1)
            of_s[j] = theta[i, 0] if group + j < end else zero
            of_r[j] = of_s[j] * rho[i]
        a, b = signs[group], signs[min(group + 1, end - 1)]
        c, d = signs[min(group + 2, end - 1)], signs[min(group + 3, end - 1)]
        ra, rb, rc, rd = of_r[0], of_r[1], of_r[2], of_r[3]
        sa, sb, sc, sd = of_s[0], of_s[1], of_s[2], of_s[3]
        for m in range(len(r)):
            va, vb = theta.dtype.type(a[m]), theta.dtype.type(b[m])
            vc, vd = theta.dtype.type(c[m]), theta.dtype.type(d[m])
            in_r = r[m] + (ra * va + rb * vb + rc * vc + rd * vd)
            in_s = s[m] + (sa * va + sb * vb + sc * vc + sd * vd)
            r[m], s[m] = in_r, in_s


@compile_pass(parallel=True, fastmath=FAST)
def forward(theta, rho, X1t, X1, metric, per_length, bounds, known, signs, pairs, sums):  # type: ignore[no-untyped-def]
    """sums[t] gets block t's share of (P^T rho, P^T 1); rows get their signs and pairs, or are called dense.

    Dense rows, signs, pairs: each of the three sums is in the order of the rows.
    """
    saturated, rounding, reach = bounds
    reference, room, near, many = known
    sample, values, number = pairs
    N, n = signs.shape
    p = reference.shape[1]
    blocks = sums.shape[0]
    zero, one, two = theta.dtype.type(0), theta.dtype.type(1), theta.dtype.type(2)
    for t in prange(blocks):
        first, end = N * t // blocks, N * (t + 1) // blocks
        r, s = sums[t, 0], sums[t, 1]
        r[:] = 0
        s[:] = 0
        some, count = np.empty(end - first + 3, np.int64), 0
        few = np.empty(NEAR, theta.dtype)
        for i in range(first, end):
            moved = zero
            for k in range(p):
                step = theta[i, k + 1] - reference[i, k]
                moved += metric[k] * step * step
            # As it stands, so that NaN counts as having left.
            if not moved <= room[i]:
                some[count] = i
                count += 1
            elif many[i]:
                some_products(theta[i, 1:], X1, near[i], many[i], few)
                number[i] = classify_near(few, near[i], many[i], saturated, signs[i], sample[i], values[i])
        some[count : count + 3] = first
        Z = np.empty((4, n), theta.dtype)
        for group in range(0, count, 4):
            products(theta, some[group : group + 4], X1t, Z)
            for j in range(min(4, count - group)):
                i, z = some[group + j], Z[j]
                square = zero
                for k in range(p):
                    square += metric[k] * theta[i, k + 1] * theta[i, k + 1]
                room[i], many[i] = -one, 0
                if square < HUGE:
                    # Rounding of z, here and in whatever step relies on this: each at most rounding |w| |x|.
                    slack = two * rounding * np.sqrt(square)
                    listed, next_one = look_around(z, per_length, saturated, reach + slack, near[i])
                    if listed >= 0 and next_one > slack:
                        room[i] = (next_one - slack) ** 2 * (one - 8 * rounding)
                        many[i] = listed
                        for k in range(p):
                            reference[i, k] = theta[i, k + 1]
                if room[i] > 0:
                    for m in range(n):
                        signs[i, m] = np.int8(1) if z[m] > 0 else np.int8(-1)
                    for place in range(many[i]):
                        few[place] = z[near[i, place]]
                    number[i] = classify_near(few, near[i], many[i], saturated, signs[i], sample[i], values[i])
                    continue
                number[i] = classify_all_near(z, signs[i], sample[i], values[i])
                if number[i] == DENSE:
                    a = theta[i, 0]
                    a_rho = a * rho[i]
                    for m in range(n):
                        in_r, in_s = r[m] + a_rho * z[m], s[m] + a * z[m]
                        r[m], s[m] = in_r, in_s
        add_signs(theta, rho, signs, first, end, r, s)
        for i in range(first, end):
            for j in range(number[i]):
                m, value = sample[i, j], theta[i, 0] * values[i, j]
                r[m] += value * rho[i]
                s[m] += value


@compile_pass(parallel=True, fastmath=FAST)
def backward(theta, rho, X1t, X1, signs, pairs, c, d, e, h, diffusion, noise, inner_c, inner_e, new, blocks):  # type: ignore[no-untyped-def]
    """T c and, where e is given, T e; and Euler-Maruyama. Dense rows are computed again, to the same bits."""
    sample, values, number = pairs
    N, n = signs.shape
    p = len(X1t)
    zero, one = theta.dtype.type(0), theta.dtype.type(1)
    for t in prange(blocks):
        first, end = N * t // blocks, N * (t + 1) // blocks
        some, count = np.empty(end - first + 3, np.int64), 0
        for i in range(first, end):
            for k in range(p + 1):
                new[i, k] = theta[i, k] + diffusion * noise[i, k]
            if number[i] == DENSE:
                some[count] = i
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
            for j in range(number[i]):
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
        some[count : count + 3] = first
        Z = np.empty((4, n), theta.dtype)
        for group in range(0, count, 4):
            products(theta, some[group : group + 4], X1t, Z)
            for j in range(min(4, count - group)):
                i, z = some[group + j], Z[j]
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


class SaturatedTanhDrift(FusedDrift):
    """``TanhDrift`` for raw features; the same results to rounding, with memory O(N (p + n/4 + NEAR)) for any N."""

    def __init__(self, problem: Problem, hyper: Hyper, N: int, blocks: int) -> None:
        self.dtype = dtype = problem.samples.X.numpy().dtype
        self.blocks, self.n = blocks, len(problem.samples)
        self.room = np.empty(N, dtype)
        self.set_samples(problem.samples)
        self.set_hyper(hyper)
        p = self.X1.shape[1]
        self.saturated = dtype.type(SATURATED[dtype])
        # Of a sum of p products: (p + 1) units, and as much again to be on the safe side.
        self.rounding = dtype.type((p + 1) * np.finfo(dtype).eps)
        # Where a list has ended any sample may stand, hence zeros.
        near, many = np.zeros((N, NEAR), np.int32), np.zeros(N, np.int32)
        self.known = np.zeros((N, p), dtype), self.room, near, many
        self.signs = np.empty((N, self.n), np.int8)
        self.number = np.zeros(N, np.int32)
        self.pairs = np.zeros((N, NEAR), np.int32), np.zeros((N, NEAR), dtype), self.number
        self.sums = np.empty((blocks, 2, self.n), dtype)
        self.inner_c, self.inner_r = np.empty(N, dtype), np.empty(N, dtype)
        self.nothing = np.empty(0, dtype)

    def set_samples(self, samples: Samples) -> None:
        # Nothing is known of them.
        self.room[:] = -1
        self.y, X1t, _ = with_ones(samples)
        self.X1t, self.X1 = X1t.numpy(), X1t.T.contiguous().numpy()
        # |<w, x>| <= sqrt(sum g w^2) sqrt(sum x^2 / g) for any g > 0. This g, large where the features are, makes the
        # first factor a fifth of what the Euclidean one is for WDBC's raw columns, at the same second one.
        directions = self.X1 / np.linalg.norm(self.X1.astype(np.float64), axis=1, keepdims=True)
        metric = np.maximum(np.sqrt(np.square(directions).mean(axis=0)), 1e-12)
        lengths = np.sqrt((np.square(self.X1.astype(np.float64)) / metric).sum(axis=1))
        # Rounded down, for a bound.
        self.per_length = ((1 - 1e-6) / lengths).astype(self.dtype)
        self.metric = metric.astype(self.dtype)
        # Of a step whose coordinates are standard normal.
        self.stride = self.dtype.type(np.sqrt(metric.sum()))

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        cloud, hyper = theta.numpy(), self.hyper
        forward(
            cloud,
            rho,
            self.X1t,
            self.X1,
            self.metric,
            self.per_length,
            (self.saturated, self.rounding, self.dtype.type(REACH) * self.diffusion * self.stride),
            self.known,
            self.signs,
            self.pairs,
            self.sums,
        )
        r, s = self.sums.sum(axis=0)
        c, d = cotangent(hyper, r, s, self.y)
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
            r if both else self.nothing,
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
