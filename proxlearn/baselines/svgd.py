"""Stein variational gradient descent (Liu and Wang 2016): interacting particles descend V and repel each other.

    velocity of i = mean_j [ -k(j, i) grad V(j) + T grad_j k(j, i) ],    k = exp(-|v_j - v_i|^2 / b)

b = (median distance)^2 / log N is computed at every iteration. Adam moves the particles with a learning rate that
decreases linearly to zero; a suitable fixed step size would depend on N, because the mean of the kernel decreases with
N. As in langevin_sampler.py, v are coordinates in which the inverse Hessian of V at the mode is the identity. There are
no published settings for these data, so the presets were chosen for this package. The samples are the final particles,
which are fewer than the 4096 samples of the other samplers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.logistic_target import LogisticTarget, Potential
from proxlearn.baselines.registry import FittedMethod, Request
from proxlearn.baselines.sampler import (
    Ledger,
    SampleResult,
    append_ledger_row,
    draw_standard_normal,
    fit_sampler,
    make_settings_function,
    request_settings,
    whitening_factor,
)
from proxlearn.core.kernels.kernel import squared_distances

LEDGER_ROWS = 10
BETAS = (0.9, 0.95)
"""Decay rates of Adam. The gradients decrease by orders of magnitude, so a long memory of the first gradients would
stall the particles."""


@dataclass(frozen=True)
class SvgdSettings:
    """The settings of SVGD, apart from the temperature."""

    particles: int
    iterations: int
    lr: float


LIGHT = SvgdSettings(particles=256, iterations=800, lr=0.5)
PAPER = SvgdSettings(particles=1024, iterations=3000, lr=0.1)
settings = make_settings_function(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Sample the posterior given the rows, and return a predictor that averages over the samples."""
    settings = request_settings(request, LIGHT, PAPER)

    def sample(target: LogisticTarget, generator: torch.Generator) -> SampleResult:
        x, _ = draw_standard_normal(settings.particles, target.dim, generator)
        return flow(target, whitening_factor(target), x, settings, request.temperature, request.progress)

    return fit_sampler(X, y, request, sample)


def flow(
    target: Potential,
    L: Tensor,
    x: Tensor,
    settings: SvgdSettings,
    temperature: float,
    progress: Callable[[str], None] = lambda text: None,
) -> SampleResult:
    """Run all iterations from the particles x (N x D); return the final particles as samples, and notes on the run."""
    v = torch.linalg.solve_triangular(L, x.T, upper=False).T.contiguous()
    adam = torch.optim.Adam([v], lr=settings.lr, betas=BETAS, fused=True)
    ledger: Ledger = []
    for iteration in range(settings.iterations + 1):
        if iteration % max(1, settings.iterations // LEDGER_ROWS) == 0:
            progress(f"SVGD iteration {iteration}/{settings.iterations}")
            append_ledger_row(target, v @ L.T, None, temperature, ledger)
        adam.param_groups[0]["lr"] = settings.lr * (1 - iteration / settings.iterations)
        v.grad = -velocity(v, target.gradient(v @ L.T) @ L, temperature)
        adam.step()
    return v @ L.T, {"steps": settings.iterations, "ledger": ledger}


def velocity(v: Tensor, gradient: Tensor, temperature: float) -> Tensor:
    """Return the velocities of the particles v (N x D), given the gradient of V at each particle."""
    N = len(v)
    distances = squared_distances(v, v)
    b = distances.median() / math.log(N)
    K = torch.exp(-distances / b)
    repulsion = 2 / b * (K.sum(1, keepdim=True) * v - K @ v)
    return (temperature * repulsion - K @ gradient) / N
