"""What the samplers of block B sample: the posterior of a Bayesian logistic regression without intercept.

A state is x = (theta, log alpha) in R^D, D = d + 1; alpha ~ Gamma(1, rate 100) and theta | alpha ~ N(0, I / alpha):

    V(x) = sum_i softplus(-y_i theta'x_i) + (alpha / 2)|theta|^2 - (d / 2) log alpha + 100 alpha - log alpha

and a sampler descends E[V] + T E[log rho], whose least value is taken by the density exp(-V / T). log alpha is clipped
to [-8, 8] before it is used, so V is flat beyond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from proxlearn.baselines.logistic_kernels import set_slopes

RATE = 100.0
"""Of the prior of alpha."""
LARGEST = 8.0
"""Magnitude of log alpha beyond which nothing changes."""
PIECE = 2**19
"""Answers of particles to rows that are held at once."""
NEWTON_STEPS = 100


class Potential(Protocol):
    """All that a sampler asks of a target."""

    @property
    def dim(self) -> int:
        """D."""

    def value(self, x: Tensor) -> Tensor:
        """V of every particle: B x D -> B."""

    def gradient(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Of V at every particle, B x D; from the rows of a data batch (their numbers) where a sampler draws one."""

    def data_batch(self, size: int | None, generator: torch.Generator) -> Tensor | None:
        """Numbers of ``size`` rows drawn for one iteration; None is all of them."""


@dataclass(frozen=True)
class LogisticTarget:
    """V and its gradient in closed form."""

    A: Tensor
    """-y_i x_i, n x d: all that V knows of the data."""
    least: float = 0.0
    """A row less likely than this under theta is left out of the gradient: what bounding likelihoods from below, before
    their logarithm is taken, does to it. V itself is not bounded."""

    @property
    def dim(self) -> int:
        return self.A.shape[1] + 1

    def value(self, x: Tensor) -> Tensor:
        theta, log_alpha = x[:, :-1], x[:, -1].clamp(-LARGEST, LARGEST)
        alpha, d = log_alpha.exp(), theta.shape[1]
        parts = torch.split(theta, max(1, PIECE // len(self.A)))
        fitted = torch.cat([torch.nn.functional.logsigmoid(-part @ self.A.T).sum(1) for part in parts])
        return -fitted + alpha / 2 * theta.square().sum(1) - (d / 2 + 1) * log_alpha + RATE * alpha

    def gradient(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        A = self.A if rows is None else self.A[rows]
        theta, log_alpha = x[:, :-1], x[:, -1]
        alpha, d = log_alpha.clamp(-LARGEST, LARGEST).exp(), theta.shape[1]
        found = torch.empty_like(x)
        kind = x.numpy().dtype.type
        bound = math.log1p(-self.least) - math.log(self.least) if self.least else math.inf
        rows_and_theta = (x.contiguous().numpy(), A.T.contiguous().numpy())
        set_slopes(*rows_and_theta, kind(len(self.A) / len(A)), kind(bound), found.numpy())
        found[:, :-1].addcmul_(alpha[:, None], theta)
        slope = alpha * (theta.square().sum(1) / 2 + RATE) - (d / 2 + 1)
        found[:, -1] = torch.where(log_alpha.abs() <= LARGEST, slope, 0.0)
        return found

    def data_batch(self, size: int | None, generator: torch.Generator) -> Tensor | None:
        if size is None or size >= len(self.A):
            return None
        return torch.randint(len(self.A), (size,), generator=generator)

    def laplace(self) -> tuple[Tensor, Tensor]:
        """The mode of exp(-V) and the inverse Hessian of V there, float64: the scales a fixed step has to respect.

        Newton in theta and the exact minimum in alpha by turns; V is convex in each of them.
        """
        A = self.A.double()
        d = A.shape[1]
        theta, eye = A.new_zeros(d), torch.eye(d, dtype=A.dtype)
        for _ in range(NEWTON_STEPS):
            alpha = (d / 2 + 1) / (RATE + theta.square().sum() / 2)
            wrong = torch.sigmoid(A @ theta)
            slope = alpha * theta + A.T @ wrong
            curvature = (A * (wrong * (1 - wrong))[:, None]).T @ A + alpha * eye
            step = torch.linalg.solve(curvature, slope)
            # Damped far away, where the logistic loss is nearly linear and a full step would overshoot.
            theta = theta - step / (1 + (step @ slope).sqrt() / 4)
            if step.abs().max() < 1e-10:
                break
        mixed = alpha * theta[:, None]
        last = (alpha * (RATE + theta.square().sum() / 2)).reshape(1, 1)
        hessian = torch.cat((torch.cat((curvature, mixed), 1), torch.cat((mixed.T, last), 1)))
        return torch.cat((theta, alpha.log().reshape(1))), torch.linalg.inv(hessian)


def probability(theta: Tensor, X: Tensor) -> Tensor:
    """Of the class +1 for each row: the mean of sigmoid(theta'x) over the samples of theta."""
    piece = max(1, PIECE // len(theta))
    return torch.cat([torch.sigmoid(part @ theta.T).mean(1) for part in torch.split(X, piece)])
