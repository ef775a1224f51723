"""Flows of isotropic normal distributions in closed form: Ornstein-Uhlenbeck, and quadratic interaction.

The drift of a particle is -stiffness x - attraction (x - m), where m is the mean of the distribution. A normal initial
distribution remains normal: its mean decays at the rate ``stiffness``, and its variance approaches its limit at the
rate 2 (stiffness + attraction).

The Ornstein-Uhlenbeck flow has V(theta) = |theta|^2 / 2 and beta = 1. Its distribution changes from N(mean, 1/4) to the
standard normal distribution.

The flow of quadratic attraction has W(theta, theta') = |theta - theta'|^2 / 4 and beta = 1. Its distribution changes
from N(1, 1/4) to N(1, 1). The first variation of its energy is (|theta - m|^2 + p variance) / 2, so the drift is m -
theta.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import gammaln, hyp1f1, ndtr
from torch import Tensor

from proxlearn.core.functionals.energy import Energy
from proxlearn.core.functionals.functional import Functional
from proxlearn.verify.finite_volumes import GridFlow, Potential
from proxlearn.verify.known_flow import KnownFlow


class GaussianFlow(KnownFlow):
    """A linear flow that starts from N(mean, variance I), with the same ``mean`` in every coordinate."""

    horizon = 1.0
    beta = 1.0

    def __init__(
        self, functional: Functional, p: int, stiffness: float, attraction: float, mean: float, variance: float
    ) -> None:
        self.functional, self.p = functional, p
        self.stiffness, self.attraction = stiffness, attraction
        self.initial_mean, self.initial_variance = mean, variance

    @property
    def rate(self) -> float:
        """The rate at which a particle approaches the mean."""
        return self.stiffness + self.attraction

    def mean(self, time: float) -> float:
        return self.initial_mean * math.exp(-self.stiffness * time)

    def variance(self, time: float) -> float:
        last = 1 / (self.beta * self.rate)
        return last + (self.initial_variance - last) * math.exp(-2 * self.rate * time)

    def draw(self, N: int, generator: torch.Generator) -> Tensor:
        numbers = torch.randn(N, self.p, generator=generator, dtype=torch.float64)
        return self.initial_mean + math.sqrt(self.initial_variance) * numbers

    def log_density(self, theta: Tensor, time: float) -> Tensor:
        variance = self.variance(time)
        squares = (theta - self.mean(time)).square().sum(1)
        return -squares / (2 * variance) - self.p / 2 * math.log(2 * math.pi * variance)

    def free_energy(self, time: float) -> float:
        # The interaction of two independent particles is (attraction / 4) E|X - Y|^2 = (attraction / 2) p variance.
        variance = self.variance(time)
        potential = self.stiffness / 2 * (variance + self.mean(time) ** 2) + self.attraction / 2 * variance
        return self.p * (potential - math.log(2 * math.pi * math.e * variance) / (2 * self.beta))

    def exact_step(self, theta: Tensor, h: float, noise: Tensor, further: Tensor) -> Tensor:
        """Return the exact solution of the N coupled equations after a time h, for a given Brownian increment.

        ``noise`` is the increment divided by sqrt(h), as an Euler-Maruyama step uses it. The exact solution depends on
        int exp(-rate (h - s)) dB_s, which is normally distributed and correlated with the increment. The part of this
        integral that is independent of the increment is computed from the standard normal numbers ``further``. The mean
        of the particles and their deviations from the mean satisfy independent linear equations with different rates.
        """
        theta_mean, noise_mean, further_mean = (values.mean(0) for values in (theta, noise, further))
        deviations = (theta - theta_mean, noise - noise_mean, further - further_mean)
        mean = self._linear_step(theta_mean, noise_mean, further_mean, self.stiffness, h)
        return mean + self._linear_step(*deviations, self.rate, h)

    def _linear_step(self, theta: Tensor, noise: Tensor, further: Tensor, rate: float, h: float) -> Tensor:
        x = rate * h
        # Integrals of exp(-rate s) and exp(-2 rate s) over a step; expm1 is accurate for small steps.
        covariance = -math.expm1(-x) / rate if x else h
        variance = -math.expm1(-2 * x) / (2 * rate) if x else h
        residual = math.sqrt(max(variance - covariance**2 / h, 0.0))
        integral = covariance / math.sqrt(h) * noise + residual * further
        return math.exp(-x) * theta + math.sqrt(2 / self.beta) * integral

    def energy_distance(self, theta: Tensor, time: float) -> float:
        deviation, p, N = math.sqrt(self.variance(time)), self.p, len(theta)
        # E|y - Y| for Y ~ N(0, I) is sqrt(2) Gamma((p+1)/2) / Gamma(p/2) 1F1(-1/2; p/2; -|y|^2/2).
        factor = math.sqrt(2) * math.exp(gammaln((p + 1) / 2) - gammaln(p / 2))
        squares = ((theta - self.mean(time)) / deviation).square().sum(1).numpy()
        cross = factor * float(np.mean(hyp1f1(-0.5, p / 2, -squares / 2)))
        within = 2 * float(torch.pdist(theta / deviation).sum()) / N**2
        return deviation * (2 * cross - within - math.sqrt(2) * factor)


def potential(theta: Tensor) -> Tensor:
    return theta.square().sum() / 2


class OrnsteinUhlenbeck(GaussianFlow):
    """The Ornstein-Uhlenbeck flow in ``p`` dimensions; its initial mean is ``mean`` in every coordinate."""

    moments = ("mean", "second")

    def __init__(self, p: int, mean: float = 1.0) -> None:
        super().__init__(Energy(V=potential, p=p), p, stiffness=1.0, attraction=0.0, mean=mean, variance=0.25)
        self.name = f"ornstein_uhlenbeck-{p}"


class OrnsteinUhlenbeckOnGrid(GridFlow):
    """The one-dimensional Ornstein-Uhlenbeck flow, solved by finite volumes to measure the error of the solver."""

    name, beta, horizon = "ornstein_uhlenbeck-1", 1.0, 1.0
    low, high = -6.0, 6.0
    components = ((1.0, 1.0, 0.5),)

    def __init__(self) -> None:
        self.functional = Energy(V=potential, p=1)

    def potential(self, x: np.ndarray) -> Potential:
        values = x**2 / 2
        return lambda masses: values

    def exact_masses(self, edges: np.ndarray) -> np.ndarray:
        """Return the masses of cells at the horizon in closed form."""
        flow = OrnsteinUhlenbeck(1)
        deviation = math.sqrt(flow.variance(self.horizon))
        return np.diff(ndtr((edges - flow.mean(self.horizon)) / deviation))


def interaction(theta: Tensor, other: Tensor) -> Tensor:
    # The square is expanded, because vmap then computes one matrix product instead of N x N x p differences.
    return (theta @ theta + other @ other) / 4 - theta @ other / 2


class QuadraticInteraction(GaussianFlow):
    """The flow of quadratic attraction in ``p`` dimensions; the mean of its distribution is constant."""

    moments = ("second",)

    def __init__(self, p: int, mean: float = 1.0) -> None:
        super().__init__(Energy(W=interaction, p=p), p, stiffness=0.0, attraction=1.0, mean=mean, variance=0.25)
        self.name = f"quadratic_interaction-{p}"
