"""The target density of the samplers: the posterior of a Bayesian logistic regression without intercept.

A state is x = (theta, log alpha) in R^D with D = d + 1, where alpha ~ Gamma(1, rate 100) and theta | alpha ~ N(0, I /
alpha). The potential of the posterior, given rows x_i and labels y_i, is

    V(x) = sum_i softplus(-y_i theta'x_i) + (alpha / 2)|theta|^2 - (d / 2) log alpha + 100 alpha - log alpha

A sampler minimises E[V] + T E[log rho] over densities rho; the minimiser is proportional to exp(-V / T). log alpha is
clipped to [-8, 8] before it is used, so V does not depend on it outside this interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import FAST, exp


@compile_pass(fastmath=FAST, error_model="numpy")
def sum_logistic_gradients(theta, At, factor, bound, gradient):  # type: ignore[no-untyped-def]
    """Store factor * sum_m sigmoid(<theta_b, a_m>) a_m in gradient[b, :d], where a_m is column m of ``At``.

    The rows of ``theta`` may have more than d entries; only the first d are used. Terms whose product <theta_b, a_m>
    exceeds ``bound`` are left out of the sum. Four particles and two features are processed at a time; if fewer remain,
    the last one is repeated.
    """
    B, d, n = len(theta), At.shape[0], At.shape[1]
    zero, one = theta.dtype.type(0), theta.dtype.type(1)
    z0, z1 = np.empty(n, theta.dtype), np.empty(n, theta.dtype)
    z2, z3 = np.empty(n, theta.dtype), np.empty(n, theta.dtype)
    for b in range(0, B, 4):
        b1, b2, b3 = min(b + 1, B - 1), min(b + 2, B - 1), min(b + 3, B - 1)
        t0, t1, t2, t3 = theta[b], theta[b1], theta[b2], theta[b3]
        z0[:], z1[:], z2[:], z3[:] = zero, zero, zero, zero
        for k in range(0, d, 2):
            last = min(k + 1, d - 1)
            mask = zero if last == k else one
            x0, x1, x2, x3 = t0[k], t1[k], t2[k], t3[k]
            y0, y1, y2, y3 = mask * t0[last], mask * t1[last], mask * t2[last], mask * t3[last]
            p, q = At[k], At[last]
            for m in range(n):
                # The results are stored last, because the compiler reloads every value after a store.
                v0, v1 = z0[m] + x0 * p[m] + y0 * q[m], z1[m] + x1 * p[m] + y1 * q[m]
                v2, v3 = z2[m] + x2 * p[m] + y2 * q[m], z3[m] + x3 * p[m] + y3 * q[m]
                z0[m], z1[m], z2[m], z3[m] = v0, v1, v2, v3
        for z in (z0, z1, z2, z3):
            for m in range(n):
                z[m] = zero if z[m] > bound else one / (one + exp(-z[m]))
        for k in range(0, d, 2):
            last = min(k + 1, d - 1)
            p, q = At[k], At[last]
            p0, p1, p2, p3, q0, q1, q2, q3 = zero, zero, zero, zero, zero, zero, zero, zero
            for m in range(n):
                p0 += p[m] * z0[m]
                p1 += p[m] * z1[m]
                p2 += p[m] * z2[m]
                p3 += p[m] * z3[m]
                q0 += q[m] * z0[m]
                q1 += q[m] * z1[m]
                q2 += q[m] * z2[m]
                q3 += q[m] * z3[m]
            gradient[b, k], gradient[b1, k] = factor * p0, factor * p1
            gradient[b2, k], gradient[b3, k] = factor * p2, factor * p3
            gradient[b, last], gradient[b1, last] = factor * q0, factor * q1
            gradient[b2, last], gradient[b3, last] = factor * q2, factor * q3


ALPHA_RATE = 100.0
"""Rate of the prior of alpha."""
MAX_LOG_ALPHA = 8.0
"""Largest magnitude of log alpha; larger values are clipped."""
CHUNK_SIZE = 2**19
"""Maximum number of products of a particle and a row that are in memory at once."""
NEWTON_STEPS = 100


class Potential(Protocol):
    """The interface of a sampler's target: a potential V and its gradient."""

    @property
    def dim(self) -> int:
        """The number D of coordinates of a state."""

    def value(self, x: Tensor) -> Tensor:
        """Return V at every particle; x is a B x D tensor, and the result has length B."""

    def gradient(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the gradient of V at every particle as a B x D tensor.

        ``rows`` contains the row numbers of a data batch; None means all rows.
        """

    def data_batch(self, size: int | None, generator: torch.Generator) -> Tensor | None:
        """Return ``size`` random row numbers, or None for all rows if ``size`` is None or not below their number."""


@dataclass(frozen=True)
class LogisticTarget:
    """The potential V of the posterior, and its gradient in closed form."""

    A: Tensor
    """Matrix (n x d) of the vectors -y_i x_i; V depends on the data only through this matrix."""
    least: float = 0.0
    """Lower bound of the likelihoods. Rows whose likelihood under theta is smaller are left out of the gradient,
    because the logarithm of their bounded likelihood is constant. ``value`` does not use the bound."""

    @property
    def dim(self) -> int:
        return self.A.shape[1] + 1

    def value(self, x: Tensor) -> Tensor:
        theta, log_alpha = x[:, :-1], x[:, -1].clamp(-MAX_LOG_ALPHA, MAX_LOG_ALPHA)
        alpha, d = log_alpha.exp(), theta.shape[1]
        chunks = torch.split(theta, max(1, CHUNK_SIZE // len(self.A)))
        log_likelihood = torch.cat([torch.nn.functional.logsigmoid(-chunk @ self.A.T).sum(1) for chunk in chunks])
        return -log_likelihood + alpha / 2 * theta.square().sum(1) - (d / 2 + 1) * log_alpha + ALPHA_RATE * alpha

    def gradient(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        A = self.A if rows is None else self.A[rows]
        theta, log_alpha = x[:, :-1], x[:, -1]
        alpha, d = log_alpha.clamp(-MAX_LOG_ALPHA, MAX_LOG_ALPHA).exp(), theta.shape[1]
        gradient = torch.empty_like(x)
        kind = x.numpy().dtype.type
        bound = math.log1p(-self.least) - math.log(self.least) if self.least else math.inf
        states, At = x.contiguous().numpy(), A.T.contiguous().numpy()
        sum_logistic_gradients(states, At, kind(len(self.A) / len(A)), kind(bound), gradient.numpy())
        gradient[:, :-1].addcmul_(alpha[:, None], theta)
        log_alpha_gradient = alpha * (theta.square().sum(1) / 2 + ALPHA_RATE) - (d / 2 + 1)
        gradient[:, -1] = torch.where(log_alpha.abs() <= MAX_LOG_ALPHA, log_alpha_gradient, 0.0)
        return gradient

    def data_batch(self, size: int | None, generator: torch.Generator) -> Tensor | None:
        if size is None or size >= len(self.A):
            return None
        return torch.randint(len(self.A), (size,), generator=generator)

    def laplace(self) -> tuple[Tensor, Tensor]:
        """Return the mode of exp(-V) and the inverse Hessian of V at the mode, in float64.

        Newton steps in theta alternate with exact minimisation over alpha. V is convex in theta and in log alpha
        separately.
        """
        A = self.A.double()
        d = A.shape[1]
        theta, eye = A.new_zeros(d), torch.eye(d, dtype=A.dtype)
        for _ in range(NEWTON_STEPS):
            alpha = (d / 2 + 1) / (ALPHA_RATE + theta.square().sum() / 2)
            sigmoid = torch.sigmoid(A @ theta)
            gradient = alpha * theta + A.T @ sigmoid
            curvature = (A * (sigmoid * (1 - sigmoid))[:, None]).T @ A + alpha * eye
            step = torch.linalg.solve(curvature, gradient)
            # Damp steps far from the mode, where the logistic loss is nearly linear and a full step would overshoot.
            theta = theta - step / (1 + (step @ gradient).sqrt() / 4)
            if step.abs().max() < 1e-10:
                break
        mixed = alpha * theta[:, None]
        last = (alpha * (ALPHA_RATE + theta.square().sum() / 2)).reshape(1, 1)
        hessian = torch.cat((torch.cat((curvature, mixed), 1), torch.cat((mixed.T, last), 1)))
        return torch.cat((theta, alpha.log().reshape(1))), torch.linalg.inv(hessian)


def positive_probability(theta: Tensor, X: Tensor) -> Tensor:
    """Return the probability of the class +1 for each row of X: the mean of sigmoid(theta'x) over all samples theta."""
    rows = max(1, CHUNK_SIZE // len(theta))
    return torch.cat([torch.sigmoid(chunk @ theta.T).mean(1) for chunk in torch.split(X, rows)])
