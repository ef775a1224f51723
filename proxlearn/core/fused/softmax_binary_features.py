"""The drift of the softmax neuron for two-valued features: table look-ups instead of the two matrix products.

A black-and-white image is a row of signs: x = mid + half s with s = -1 or 1 in every column. W x is a sum over features
with the sign pattern of a sample, and the gradient is a sum over samples with the sign pattern of a feature. Both use
the same ``look_up``.

LANES particles form a tile. Every entry of a table has one number per particle of the tile, and every pass reads memory
in order. Every sum is computed within one block of a pass.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.drift_base import FusedDrift, potential
from proxlearn.core.fused.sign_sum_tables import INPUTS, LANES, PATTERNS, TABLES, apply_weights, look_up, patterns
from proxlearn.core.fused.softmax_drift import update
from proxlearn.core.fused.vector_math import FAST, exp
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples

STRIP = 32
"""Number of samples for which the logits of all classes fit into the L1 cache."""
LEAST = 128
"""Minimum number of samples, and of features, for which filling the tables is worthwhile."""


@compile_pass(parallel=True, fastmath=FAST)
def logits(theta, first, half, mid, codes, inputs, tables, Z):  # type: ignore[no-untyped-def]
    """Compute the logits Z = W X^T + b relative to the last class.

    A task is one class of one tile, so that all threads have equal work.
    """
    N, n_x = len(theta), len(half)
    tiles, others, _ = Z.shape
    blocks, used = len(inputs), codes.shape[1] * LANES
    for t in prange(blocks):
        x = inputs[t]
        x[:] = 0
        for task in range(tiles * others * t // blocks, tiles * others * (t + 1) // blocks):
            i, c = task // others, task % others
            for lane in range(min(LANES, N - i * LANES)):
                row = theta[i * LANES + lane]
                own, last = row[first + c * n_x :], row[first + others * n_x :]
                shift = row[c] - row[others] if first else x.dtype.type(0)
                for k in range(n_x):
                    w = own[k] - last[k]
                    shift += mid[k] * w
                    x[k * LANES + lane] = half[k] * w
                x[n_x * LANES + lane] = shift
            look_up(x, codes, tables[t], Z[i, c][:used])


@compile_pass(parallel=True, fastmath=FAST)
def forward(Z, labels, rho, ones, P, r, s, blocks):  # type: ignore[no-untyped-def]
    """Replace the logits Z by class probabilities, and store the probability of each sample's own class in P.

    Also compute r = P^T rho and s = P^T 1. The samples are processed STRIP at a time.
    """
    tiles, others, _ = Z.shape
    n = len(labels)
    one = Z.dtype.type(1)
    for t in prange(blocks):
        end = n * (t + 1) // blocks
        top, last = np.empty(STRIP * LANES, Z.dtype), np.empty(STRIP * LANES, Z.dtype)
        total = np.empty(STRIP * LANES, Z.dtype)
        for start in range(n * t // blocks, end, STRIP):
            stop = min(start + STRIP, end)
            size = (stop - start) * LANES
            r[start:stop] = 0
            s[start:stop] = 0
            for i in range(tiles):
                top[:] = 0
                for c in range(others):
                    row = Z[i, c][start * LANES : stop * LANES]
                    for q in range(size):
                        top[q] = max(top[q], row[q])
                for q in range(size):
                    last[q] = exp(-top[q])
                    total[q] = last[q]
                for c in range(others):
                    row = Z[i, c][start * LANES : stop * LANES]
                    for q in range(size):
                        value = exp(row[q] - top[q])
                        row[q] = value
                        total[q] += value
                for q in range(size):
                    total[q] = one / total[q]
                    last[q] *= total[q]
                for c in range(others):
                    row = Z[i, c][start * LANES : stop * LANES]
                    for q in range(size):
                        row[q] *= total[q]
                for m in range(start, stop):
                    own, q = last, (m - start) * LANES
                    if labels[m] < others:
                        own, q = Z[i, labels[m]], m * LANES
                    of_rho, of_ones = Z.dtype.type(0), Z.dtype.type(0)
                    for lane in range(LANES):
                        value = own[q + lane]
                        P[i, m * LANES + lane] = value
                        of_rho += rho[i, lane] * value
                        of_ones += ones[i, lane] * value
                    r[m] += of_rho
                    s[m] += of_ones


@compile_pass(parallel=True, fastmath=FAST)
def backward(Z, labels, P, rho, c, d, inner_c, half, mid, codes, sums, tables, gradient, shifts):  # type: ignore[no-untyped-def]
    """Compute inner_c = P c, and replace the probabilities by G P (delta_label - p).

    ``gradient`` is the sum over the samples of these new values times X, and ``shifts`` is the same sum without X. Both
    have one row per particle and class, except for the last class.
    """
    N, n_x = len(inner_c), len(half)
    tiles, others, _ = Z.shape
    blocks = len(sums)
    for t in prange(blocks):
        to = sums[t]
        total = np.empty(LANES, Z.dtype)
        for task in range(tiles * others * t // blocks, tiles * others * (t + 1) // blocks):
            i, k = task // others, task % others
            row, p = Z[i, k], P[i]
            for m in range(len(c)):
                hit = Z.dtype.type(1) if labels[m] == k else Z.dtype.type(0)
                apply_weights(row, m, p, rho, i, c[m], d[m], hit)  # type: ignore[call-arg]
            if k == 0:
                total[:] = 0
                for m in range(len(c)):
                    for lane in range(LANES):
                        total[lane] += c[m] * p[m * LANES + lane]
            look_up(row, codes, tables[t], to)
            for lane in range(min(LANES, N - i * LANES)):
                if k == 0:
                    inner_c[i * LANES + lane] = total[lane]
                at = (i * LANES + lane) * others + k
                g, shift = gradient[at], to[n_x * LANES + lane]
                for j in range(n_x):
                    g[j] = half[j] * to[j * LANES + lane] + mid[j] * shift
                shifts[at, 0] = shift


def signs(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the midpoint and half-range of each column, and a mask of the entries equal to mid + half.

    Return None if a column has more than two values.
    """
    lo, hi = X.min(axis=0), X.max(axis=0)
    above = hi == X
    if not bool((above | (lo == X)).all()):
        return None
    return lo / 2 + hi / 2, hi / 2 - lo / 2, above


def is_applicable(problem: Risk, N: int) -> bool:
    """Return whether this drift applies to the samples and is faster than the matrix products.

    For at least LEAST samples and features, a full tile of particles and 2 to 10 classes, it was up to 3.5 times as
    fast as the products and never slower in measurements with one thread in both precisions. It never applies to
    mini-batches, because the features of the next batch may have a third value.
    """
    X = problem.samples.X
    return not problem.batch and N >= LANES and min(X.shape) >= LEAST and signs(X.numpy()) is not None


class BinaryFeaturesDrift(FusedDrift):
    """The drift of a cloud of softmax neurons on features with two values."""

    def __init__(self, problem: Risk, hyper: Hyper, N: int, blocks: int) -> None:
        super().__init__(problem, hyper, blocks)
        X, dtype = problem.samples.X, self.dtype
        n, n_x = X.shape
        coordinates = problem.neuron.coordinates(n_x)
        others, tiles = coordinates["w"] // n_x - 1, -(-N // LANES)
        self.intercepts = coordinates.get("b", 0)

        def zeros(*shape: int) -> np.ndarray:
            # torch aligns its memory to registers; reading an entry that crosses two cache lines would take twice as
            # long.
            array: np.ndarray = X.new_zeros(shape).numpy()
            return array

        self.Z = zeros(tiles, others, len(self.of_features) * INPUTS * LANES)
        self.P = zeros(tiles, n * LANES)
        self.inputs = zeros(blocks, len(self.of_samples) * INPUTS * LANES)
        self.tables = zeros(blocks, TABLES, PATTERNS * LANES)
        self.sums = zeros(blocks, (n_x + 1) * LANES)
        self.rho, self.ones = zeros(tiles, LANES), zeros(tiles, LANES)
        self.ones.reshape(-1)[:N] = 1
        self.gradient, self.shifts = zeros(N * others, n_x), zeros(N * others, 1)
        self.rs, self.inner_c = np.empty((2, n), dtype), np.empty(N, dtype)

    def _prepare(self, samples: Samples) -> None:
        signed = signs(samples.X.numpy())
        assert samples.labels is not None, "the softmax neuron needs labelled samples"
        assert signed is not None, "a feature has more than two values"
        self.labels = samples.labels.numpy()
        self.mid, self.half, above = signed
        # The last feature is 1: its weight is the shift of the logits, and its gradient is the gradient of the shift.
        above = np.column_stack((above, np.ones(self.n, bool)))
        self.of_samples, self.of_features = patterns(above), patterns(above.T)

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        self.rho.reshape(-1)[: len(rho)] = rho
        inputs = (self.half, self.mid, self.of_samples, self.inputs, self.tables)
        logits(theta.numpy(), self.intercepts, *inputs, self.Z)
        forward(self.Z, self.labels, self.rho, self.ones, self.P, *self.rs, self.blocks)
        return self.rs

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        first, N, Z, P = self.intercepts, len(rho), self.Z, self.P
        columns = (self.half, self.mid)
        c, d = self.cotangent(r, s)
        u = None
        if self.hyper.drift != self.hyper.prox_potential:
            u = (self._weighted(r) @ P.reshape(-1, self.n, LANES)).reshape(-1)[:N] / self.n
        sums = (self.of_features, self.sums, self.tables, self.gradient, self.shifts)
        backward(Z, self.labels, P, self.rho, c, d, self.inner_c, *columns, *sums)
        new = torch.empty_like(theta)
        steps = (self.h, self.diffusion, noise.numpy(), new.numpy())
        update(theta.numpy(), self.gradient, first, *steps)
        if first:
            update(theta.numpy(), self.shifts, 0, *steps)
        return new, potential(self.hyper, self.inner_c.copy(), u)
