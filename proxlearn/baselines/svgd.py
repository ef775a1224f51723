"""Stein variational gradient descent (Liu and Wang 2016): particles that descend V together and push each other apart.

    velocity of i = mean_j [ -k(j, i) grad V(j) + T grad_j k(j, i) ],    k = exp(-|v_j - v_i|^2 / b)

with b = (median distance)^2 / log N anew at every iteration, and Adam with a learning rate that falls linearly to zero
(the kernel's mean shrinks with N, so a fixed step would depend on it). As in ``langevin``, v are coordinates in which
the inverse Hessian of V at its mode is the identity. Nothing of this is published for these data: both presets are
ours. The particles themselves, fewer than 4096, are the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.logistic_target import LogisticTarget, Potential
from proxlearn.baselines.method import FittedMethod, Request
from proxlearn.baselines.sampler import (
    Ledger,
    Sampled,
    choose,
    fit_sampler,
    ledger_row,
    settings_dict,
    standard_normal,
    whitening,
)
from proxlearn.core.kernel import squared_distances

ENTERED = 10
"""Rows of the ledger."""
BETAS = (0.9, 0.95)
"""Of Adam: gradients fall by orders of magnitude on the way in, and a long memory of the first would stall the rest."""


@dataclass(frozen=True)
class SvgdSettings:
    """Everything but the target and the temperature."""

    particles: int
    iterations: int
    lr: float


LIGHT = SvgdSettings(particles=256, iterations=800, lr=0.5)
PAPER = SvgdSettings(particles=1024, iterations=3000, lr=0.1)
settings = settings_dict(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Particles by the plan of the preset."""
    plan = choose(request, LIGHT, PAPER)

    def sample(target: LogisticTarget, generator: torch.Generator) -> Sampled:
        x, _ = standard_normal(plan.particles, target.dim, generator)
        return flow(target, whitening(target), x, plan, request.temperature, request.progress)

    return fit_sampler(X, y, request, sample)


def flow(
    target: Potential,
    L: Tensor,
    x: Tensor,
    plan: SvgdSettings,
    temperature: float,
    progress: Callable[[str], None] = lambda text: None,
) -> Sampled:
    """The particles x (N x D) after all iterations, and the ledger. Nothing here is random."""
    v = torch.linalg.solve_triangular(L, x.T, upper=False).T.contiguous()
    adam = torch.optim.Adam([v], lr=plan.lr, betas=BETAS, fused=True)
    ledger: Ledger = []
    for iteration in range(plan.iterations + 1):
        if iteration % max(1, plan.iterations // ENTERED) == 0:
            progress(f"SVGD iteration {iteration}/{plan.iterations}")
            ledger_row(target, v @ L.T, None, temperature, ledger)
        adam.param_groups[0]["lr"] = plan.lr * (1 - iteration / plan.iterations)
        v.grad = -velocity(v, target.gradient(v @ L.T) @ L, temperature)
        adam.step()
    return v @ L.T, {"steps": plan.iterations, "ledger": ledger}


def velocity(v: Tensor, slope: Tensor, temperature: float) -> Tensor:
    """Of every particle, N x D, given the gradient of V at each."""
    N = len(v)
    distances = squared_distances(v, v)
    b = distances.median() / math.log(N)
    K = torch.exp(-distances / b)
    repulsion = 2 / b * (K.sum(1, keepdim=True) * v - K @ v)
    return (temperature * repulsion - K @ slope) / N
