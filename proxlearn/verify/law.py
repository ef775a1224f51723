"""Comparison of the distribution of the particles with the solution: errors as functions of the step size h and of N.

The leading error of the Euler-Maruyama method is O(h), far below the Monte Carlo error of a cloud. Errors as functions
of h are therefore differences between two solutions for the same Brownian path. One is the recursion with the step size
h. The other is the exact solution of the N coupled equations if it is known; otherwise, it is the recursion with h/2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn import flow as recursion
from proxlearn.core.cloud import PointCloud
from proxlearn.core.hyper import Hyper
from proxlearn.verify.finite_volumes import GridFlow
from proxlearn.verify.gaussian_flow import GaussianFlow
from proxlearn.verify.known_flow import KnownFlow, clouds_at, generator, moment_values

CONFIDENCE = 0.95


def uniform_hyper(flow: KnownFlow, h: float) -> Hyper:
    """Return the hyperparameters of steps that do not change the weights; epsilon has no effect on such steps."""
    return Hyper(beta=flow.beta, h=h, epsilon=1.0, drift="first_variation", weights="uniform")


def moved(flow: KnownFlow, theta: Tensor, h: float, noise: Tensor) -> Tensor:
    """Return the locations after one step of the recursion with equal weights."""
    cloud = PointCloud.from_arrays(theta)
    after, _ = recursion.step(flow.functional, cloud, uniform_hyper(flow, h), noise, torch.ones(len(theta)))
    return after.theta


def weak_errors(flow: KnownFlow, N: int, steps: Sequence[int], seed: int) -> dict[str, list[float]]:
    """Return the errors of each moment at the horizon, one for every number of steps.

    For a Gaussian flow, the reference is the exact solution; for any other flow, it is the recursion with h/2.
    """
    errors: dict[str, list[float]] = {name: [] for name in flow.moments}
    for number in steps:
        h = flow.horizon / number
        rng = generator(seed, number)
        theta = other = flow.draw(N, rng)
        for _ in range(number):
            first, second = (torch.randn(N, flow.p, generator=rng, dtype=torch.float64) for _ in range(2))
            if isinstance(flow, GaussianFlow):
                theta, other = moved(flow, theta, h, first), flow.exact_step(other, h, first, second)
            else:
                theta = moved(flow, theta, h, (first + second) / math.sqrt(2))
                for half in (first, second):
                    other = moved(flow, other, h / 2, half)
        values, references = moment_values(theta), moment_values(other)
        for name in flow.moments:
            errors[name].append(values[name] - references[name])
    return errors


def distances(flow: KnownFlow, sizes: Sequence[int], h: float, seed: int) -> dict[str, list[float]]:
    """Return the distances between the cloud and the solution at the horizon, in the order of ``sizes``.

    ``energy`` is the square root of the energy distance; ``W2``, the Wasserstein distance, is present only in one
    dimension.
    """
    result: dict[str, list[float]] = {"energy": []}
    for N in sizes:
        rng = generator(seed, N)
        cloud = PointCloud.from_arrays(flow.draw(N, rng))
        noise_seed = int(torch.randint(2**31, (), generator=rng))
        (cloud,) = clouds_at(flow.functional, cloud, uniform_hyper(flow, h), (flow.horizon,), noise_seed)
        result["energy"].append(math.sqrt(max(flow.energy_distance(cloud.theta, flow.horizon), 0.0)))
        if flow.p == 1:
            result.setdefault("W2", []).append(wasserstein(flow, cloud.theta, flow.horizon))
    return result


def wasserstein(flow: KnownFlow, theta: Tensor, time: float, per_particle: int = 64) -> float:
    """Return the Wasserstein distance W2 between the empirical distribution and the solution in one dimension.

    It is the L2 distance between the two quantile functions at ``time``, computed with ``per_particle`` equally spaced
    levels per particle.
    """
    N = len(theta)
    levels = (np.arange(N * per_particle) + 0.5) / (N * per_particle)
    ordered = np.repeat(np.sort(theta[:, 0].numpy()), per_particle)
    if isinstance(flow, GridFlow):
        quantiles = flow.quantiles(levels, time)
    else:
        assert isinstance(flow, GaussianFlow)
        from scipy.special import ndtri

        quantiles = flow.mean(time) + math.sqrt(flow.variance(time)) * ndtri(levels)
    return float(np.sqrt(np.mean((ordered - quantiles) ** 2)))


@dataclass(frozen=True)
class Order:
    """A fitted order of convergence, with the half-width of its 95 % confidence interval."""

    value: float
    half_width: float

    @property
    def text(self) -> str:
        return f"{self.value:.2f} ± {self.half_width:.2f}"

    def within(self, low: float, high: float) -> bool:
        """Return whether the whole interval lies in [low, high]."""
        return low <= self.value - self.half_width and self.value + self.half_width <= high


def fit_order(scales: Sequence[float], errors: Sequence[Sequence[float]]) -> Order:
    """Return the slope of log|error| on log(scale): the mean over the seeds, with Student's interval.

    ``errors`` has one row per seed, and a slope is fitted to each row. The seeds are independent, so the interval is
    approximately valid, apart from the bias that the logarithm of noisy values causes. The half-width is NaN if there
    is only one seed.
    """
    from scipy.stats import t

    x = np.log(np.asarray(scales))
    x = x - x.mean()
    slopes = np.log(np.abs(np.asarray(errors, dtype=float))) @ x / (x @ x)
    k = len(slopes)
    if k < 2:
        return Order(float(slopes.mean()), math.nan)
    half = float(t.ppf((1 + CONFIDENCE) / 2, k - 1)) * float(slopes.std(ddof=1)) / math.sqrt(k)
    return Order(float(slopes.mean()), half)


def bias_of_weights(flow: KnownFlow, N: int, h: float, epsilon: float, seed: int) -> dict[str, float]:
    """Return the second moment of the particles with proximal and with equal weights, for the same noise.

    The drift of an interaction or a risk is a weighted sum over the particles. If the weights are proportional to the
    density p of the particles, this sum approximates an integral against p^2 instead of p.
    """
    rng = generator(seed, N)
    theta = flow.draw(N, rng)
    noise_seed = int(torch.randint(2**31, (), generator=rng))
    result = {}
    for weights in ("uniform", "proximal"):
        hyper = Hyper(
            beta=flow.beta,
            h=h,
            epsilon=epsilon,
            weights=weights,
            drift="first_variation",
            prox_potential="first_variation",
            orientation="consistent",
            tolerance="log",
        )
        start = PointCloud.from_arrays(theta)
        (cloud,) = clouds_at(flow.functional, start, hyper, (flow.horizon,), noise_seed)
        result[weights] = moment_values(cloud.theta)["second"]
    return result
