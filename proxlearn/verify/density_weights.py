"""Comparison of the weights with the density at the particles, with controls that use less information.

All variants start from the same cloud and use the same noise. The controls show what the proximal step adds:

- With w = 0, the step only smooths the weights.
- Gamma 1 is a kernel density estimate with the variance epsilon of the proximal step; it needs no recursion.
- Gibbs weights depend only on the first variation at each particle.
- Frozen weights are never updated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.kernel import squared_distances
from proxlearn.core.metrics import effective_sample_size
from proxlearn.verify.known_flow import BlindFunctional, KnownFlow, clouds_at, generator

BANDWIDTHS = 2.0 ** torch.arange(-8, 7)
"""Candidate variances of ``kde_best``, as multiples of the rule-of-thumb variance; the candidate with the smallest
total variation is chosen."""


@dataclass(frozen=True)
class WeightsSetting:
    """The settings of one comparison of the weights with the density."""

    N: int
    h: float
    epsilon: float
    orientation: str = "consistent"
    prox_potential: str = "first_variation"

    def hyper(self, beta: float) -> Hyper:
        return Hyper(
            beta=beta,
            h=self.h,
            epsilon=self.epsilon,
            orientation=self.orientation,  # type: ignore[arg-type]
            prox_potential=self.prox_potential,  # type: ignore[arg-type]
            drift="first_variation",
            tolerance="log",
            delta=1e-6,
            L=2000,
        )


def rule_of_thumb(p: int, N: int, variance: float) -> float:
    """Return Silverman's kernel variance for N draws from a normal distribution in p dimensions with this variance."""
    return float(variance * (4 / (p + 2)) ** (2 / (p + 4)) * N ** (-2 / (p + 4)))


def compare_weights(flow: KnownFlow, setting: WeightsSetting, times: Sequence[float], seed: int) -> dict[str, Any]:
    """Return measures of the agreement between the weights of every variant and the density, by time and variant."""
    theta, density, noise_seed = first_cloud(flow, setting.N, seed)
    equal = torch.full_like(density, -math.log(len(density)))
    hyper = setting.hyper(flow.beta)
    result: dict[str, Any] = {f"{time:g}": {} for time in times}
    blind = BlindFunctional(flow.functional)
    variants: dict[str, tuple[Functional, Tensor]] = {
        "proximal": (flow.functional, density),
        "w = 0": (blind, density),
        "uniform first": (flow.functional, equal),
    }
    for name, (functional, log_rho) in variants.items():
        clouds = clouds_at(functional, PointCloud(theta, log_rho), hyper, times, noise_seed)
        for time, cloud in zip(times, clouds, strict=True):
            log_p, result_at = flow.log_density(cloud.theta, time), result[f"{time:g}"]
            kde = kernel_density(cloud.theta, setting.epsilon)
            result_at[name] = agreement(cloud.log_rho, log_p, kde)
            if name == "proximal":
                result_at |= static_controls(flow, cloud, density, log_p, kde)
    return result


def first_cloud(flow: KnownFlow, N: int, seed: int) -> tuple[Tensor, Tensor, int]:
    """Return initial locations, the logarithms of the normalised density there, and a seed for the noise."""
    rng = generator(seed, N, flow.p)
    theta = flow.draw(N, rng)
    noise_seed = int(torch.randint(2**31, (), generator=rng))
    return theta, torch.log_softmax(flow.log_density(theta, 0.0), dim=0), noise_seed


def total_variations(flow: KnownFlow, setting: WeightsSetting, time: float, seed: int) -> dict[str, float]:
    """Return the total variation between the density and each of four kinds of weights, at one time."""
    theta, density, noise_seed = first_cloud(flow, setting.N, seed)
    start = PointCloud(theta, density)
    (cloud,) = clouds_at(flow.functional, start, setting.hyper(flow.beta), (time,), noise_seed)
    log_p, kde = flow.log_density(cloud.theta, time), kernel_density(cloud.theta, setting.epsilon)
    controls = static_controls(flow, cloud, density, log_p, kde)
    silverman = rule_of_thumb(flow.p, setting.N, float(cloud.theta.var(0).mean()))
    return {
        "proximal": agreement(cloud.log_rho, log_p, kde)["tv"],
        "kde_best": controls["kde_best"]["tv"],
        "kde_silverman": agreement(kernel_density(cloud.theta, silverman), log_p, kde)["tv"],
        "gibbs": controls["gibbs"]["tv"],
    }


def static_controls(flow: KnownFlow, cloud: PointCloud, first: Tensor, log_p: Tensor, kde: Tensor) -> dict[str, Any]:
    """Return the measures of weights that need no recursion, at the particles of a cloud.

    ``first``, ``log_p`` and ``kde`` are the logarithms of the initial weights, of the density and of Gamma 1.
    """
    equal = torch.full_like(log_p, 1 / len(log_p))
    gibbs = -flow.beta * flow.functional.first_variation(cloud.theta, equal)
    scale = rule_of_thumb(flow.p, len(log_p), float(cloud.theta.var(0).mean()))
    estimates = [agreement(kernel_density(cloud.theta, float(b) * scale), log_p, kde) for b in BANDWIDTHS]
    best = min(range(len(BANDWIDTHS)), key=lambda i: estimates[i]["tv"])
    return {
        "kde": agreement(kde, log_p, kde),
        "kde_best": estimates[best] | {"epsilon": float(BANDWIDTHS[best]) * scale},
        "gibbs": agreement(gibbs, log_p, kde),
        "frozen": agreement(first, log_p, kde),
        "uniform": agreement(equal.log(), log_p, kde),
    }


def kernel_density(theta: Tensor, epsilon: float) -> Tensor:
    """Return the logarithm of the kernel density estimate Gamma 1 at the particles.

    The sum at a particle includes the particle itself.
    """
    return torch.logsumexp(-squared_distances(theta, theta) / (2 * epsilon), dim=1)


def agreement(log_rho: Tensor, log_p: Tensor, log_kde: Tensor) -> dict[str, float]:
    """Return measures of the agreement of weights with the density at the particles.

    ``slope`` is the regression slope of log rho on log p, and ``corr`` is their correlation. ``tv`` is the total
    variation between the normalised weights and the normalised density values. ``corr_kde`` is the correlation of log
    rho with the logarithm of a kernel density estimate. ``beyond`` is the correlation of log rho with log p after both
    have been regressed on that logarithm; it measures information about the density that the estimate does not contain.
    ``ess`` is the effective sample size of the weights divided by N.
    """
    x, y, k = (values - values.mean() for values in (log_p, log_rho, log_kde))
    difference = torch.softmax(log_rho, 0) - torch.softmax(log_p, 0)
    return {
        "slope": float(x @ y / (x @ x)),
        "corr": correlation(x, y),
        "tv": float(difference.abs().sum() / 2),
        "corr_kde": correlation(k, y),
        "beyond": correlation(x - k * (k @ x / (k @ k)), y - k * (k @ y / (k @ k))),
        "ess": float(effective_sample_size(log_rho)) / len(log_rho),
    }


def correlation(x: Tensor, y: Tensor) -> float:
    """Return the correlation of centred values, or 0 if x or y does not vary beyond rounding or is not finite."""
    norms = float(x.norm()), float(y.norm())
    small = 1e-9 * math.sqrt(len(x))
    return 0.0 if min(norms) < small or not all(map(math.isfinite, norms)) else float(x @ y) / (norms[0] * norms[1])
