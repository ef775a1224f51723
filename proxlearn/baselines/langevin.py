"""Unadjusted Langevin: the simplest sampler one would try on the same target.

    v <- v - eta L'grad V(L v) + sqrt(2 eta T) xi,     x = L v

L L' is the inverse Hessian of V at its mode, so that one eta suits all coordinates (their scales differ by a factor of
thirty on banana). Far out V is steep and the explicit step would overshoot: there the drift is shortened to length 1,
one posterior standard deviation; near the mode that never happens. The answer's variance is 1 / (1 - eta / 2) times too
large, the usual bias of a step without acceptance test. Nothing of this is published: both presets are ours.
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
    SAMPLES,
    Ledger,
    Sampled,
    choose,
    fit_sampler,
    ledger_row,
    settings_dict,
    shorten,
    standard_normal,
    whitening,
)

ENTERED = 10
"""Rows of the ledger."""


@dataclass(frozen=True)
class LangevinSettings:
    """Everything but the target and the temperature."""

    eta: float
    steps: int
    """Before the first snapshot."""
    between: int
    """Steps from one snapshot of all chains to the next."""
    chains: int = 1024


LIGHT = LangevinSettings(eta=0.1, steps=300, between=30, chains=512)
PAPER = LangevinSettings(eta=0.02, steps=1500, between=150)
settings = settings_dict(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Snapshots of many chains by the plan of the preset."""
    plan = choose(request, LIGHT, PAPER)

    def sample(target: LogisticTarget, generator: torch.Generator) -> Sampled:
        return flow(target, whitening(target), plan, request.temperature, generator, request.progress)

    return fit_sampler(X, y, request, sample)


def flow(
    target: Potential,
    L: Tensor,
    plan: LangevinSettings,
    temperature: float,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> Sampled:
    """Chains from N(0, I): snapshots that make up the samples, and the ledger."""
    x, log_rho = standard_normal(plan.chains, target.dim, generator)
    v = torch.linalg.solve_triangular(L, x.T, upper=False).T
    ledger: Ledger = []
    ledger_row(target, x, log_rho, temperature, ledger)
    snapshots: list[Tensor] = []
    last = plan.steps + plan.between * (SAMPLES // plan.chains - 1)
    noise = math.sqrt(2 * plan.eta * temperature)
    for step in range(1, last + 1):
        drift = shorten(plan.eta * target.gradient(v @ L.T) @ L)
        v = v - drift + noise * torch.randn(v.shape, generator=generator)
        if step >= plan.steps and (step - plan.steps) % plan.between == 0:
            snapshots.append(v @ L.T)
        if step % max(1, last // ENTERED) == 0:
            progress(f"Langevin step {step}/{last}")
            ledger_row(target, v @ L.T, None, temperature, ledger)
    return torch.cat(snapshots), {"steps": last, "ledger": ledger}
