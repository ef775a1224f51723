"""Unadjusted Langevin dynamics, a sampler of the posterior that is defined in logistic_target.py.

    v <- v - eta L'grad V(L v) + sqrt(2 eta T) xi,     x = L v,     xi ~ N(0, I)

L L' is the inverse Hessian of V at the mode, so one step size eta suits all coordinates (on banana, their scales differ
by a factor of thirty). Far from the mode, V is steep and an explicit step would overshoot, so the drift is clipped to
length 1, which is one posterior standard deviation. Near the mode, the drift is shorter and is not clipped. The
variance of the samples is too large by a factor of 1 / (1 - eta / 2); such a bias is usual for steps without an
acceptance test. There are no published settings, so the presets were chosen for this package.
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
    NUM_SAMPLES,
    Ledger,
    SampleResult,
    append_ledger_row,
    clip_rows,
    draw_standard_normal,
    fit_sampler,
    make_settings_function,
    request_settings,
    whitening_factor,
)

LEDGER_ROWS = 10


@dataclass(frozen=True)
class LangevinSettings:
    """The settings of Langevin dynamics, apart from the temperature."""

    eta: float
    steps: int
    """Number of steps before the first snapshot of all chains."""
    between: int
    """Number of steps between consecutive snapshots of all chains."""
    chains: int = 1024


LIGHT = LangevinSettings(eta=0.1, steps=300, between=30, chains=512)
PAPER = LangevinSettings(eta=0.02, steps=1500, between=150)
settings = make_settings_function(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Sample the posterior given the rows, and return a predictor that averages over the samples."""
    settings = request_settings(request, LIGHT, PAPER)

    def sample(target: LogisticTarget, generator: torch.Generator) -> SampleResult:
        return flow(target, whitening_factor(target), settings, request.temperature, generator, request.progress)

    return fit_sampler(X, y, request, sample)


def flow(
    target: Potential,
    L: Tensor,
    settings: LangevinSettings,
    temperature: float,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> SampleResult:
    """Run the chains, starting from N(0, I); return the snapshots of all chains, and notes with the ledger."""
    x, log_rho = draw_standard_normal(settings.chains, target.dim, generator)
    v = torch.linalg.solve_triangular(L, x.T, upper=False).T
    ledger: Ledger = []
    append_ledger_row(target, x, log_rho, temperature, ledger)
    snapshots: list[Tensor] = []
    last = settings.steps + settings.between * (NUM_SAMPLES // settings.chains - 1)
    noise = math.sqrt(2 * settings.eta * temperature)
    for step in range(1, last + 1):
        drift = clip_rows(settings.eta * target.gradient(v @ L.T) @ L)
        v = v - drift + noise * torch.randn(v.shape, generator=generator)
        if step >= settings.steps and (step - settings.steps) % settings.between == 0:
            snapshots.append(v @ L.T)
        if step % max(1, last // LEDGER_ROWS) == 0:
            progress(f"Langevin step {step}/{last}")
            append_ledger_row(target, v @ L.T, None, temperature, ledger)
    return torch.cat(snapshots), {"steps": last, "ledger": ledger}
