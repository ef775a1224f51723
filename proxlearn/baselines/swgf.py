"""SWGF (Bonet et al. 2022): implicit steps of the flow in the sliced-Wasserstein metric, each a normalising flow.

Step k minimises over flows x = g(z), z ~ N(0, I), with a fresh Adam that begins with the flow of step k - 1,

    SW2^2(x, x_prev) + 2 h (mean V(x) + T mean[log N(z) - log det])

SW2^2 is the mean over random directions of the squared distances of sorted projections. Its slope needs no autodiff:
a particle is drawn to the one of equal rank, direction by direction.

The published notebook sums V over its 1024 particles where it averages the entropy: that is its h times 1024 (the h
of the presets here) at the temperature 1/1024. The temperature of a request is 1 unless it says otherwise.

Beyond the published settings: the first flow is exactly the identity, x_prev is drawn from a pool made once a step
instead of being computed anew at every iteration, and V's gradient uses all rows. The light preset has one h for all
data and lets its learning rate fall within each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.logistic_target import Potential
from proxlearn.baselines.method import FittedMethod, Request
from proxlearn.baselines.radix_ranks import subtract_partners
from proxlearn.baselines.realnvp import RealNvp
from proxlearn.baselines.sampler import (
    SAMPLES,
    Ledger,
    Sampled,
    choose,
    fit_sampler,
    ledger_row,
    log_normal,
    settings_dict,
)

REPORT_EVERY = 50


@dataclass(frozen=True)
class SwgfSettings:
    """Everything but the target and the temperature."""

    h: float
    steps: int
    lr: float
    iterations: int = 500
    width: int = 512
    batch: int = 1024
    directions: int = 1000
    pool: int = 65536
    lr_falls: bool = False
    """Linearly to zero within each step: what a large learning rate needs to settle."""


LIGHT = SwgfSettings(
    h=0.1, steps=5, lr=5e-3, iterations=120, width=64, batch=256, directions=100, pool=8192, lr_falls=True
)
PAPER = {
    "banana": SwgfSettings(h=102.4, steps=5, lr=1e-4),
    "diabetes": SwgfSettings(h=5.12e-3, steps=10, lr=5e-4),
    "twonorm": SwgfSettings(h=1.024e-5, steps=20, lr=1e-4),
}
settings = settings_dict(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Samples of the posterior by the plan of the preset."""
    plan = choose(request, LIGHT, PAPER)
    return fit_sampler(
        X, y, request, lambda target, generator: flow(target, plan, request.temperature, generator, request.progress)
    )


def flow(
    target: Potential,
    plan: SwgfSettings,
    temperature: float,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> Sampled:
    """All steps from N(0, I): samples of the last flow, and the ledger."""
    nvp = RealNvp(target.dim, plan.width, generator)
    z = torch.randn(SAMPLES, target.dim, generator=generator)
    ledger: Ledger = []
    for k in range(plan.steps + 1):
        x, log_det = nvp(z)
        ledger_row(target, x, log_normal(z) - log_det, temperature, ledger)
        if k < plan.steps:

            def tell(iteration: int, k: int = k) -> None:
                progress(f"SWGF step {k + 1}/{plan.steps}, iteration {iteration}/{plan.iterations}")

            step(target, nvp, plan, temperature, generator, tell)
    return x, {"steps": plan.steps, "iterations": plan.steps * plan.iterations, "ledger": ledger}


def step(
    target: Potential,
    nvp: RealNvp,
    plan: SwgfSettings,
    temperature: float,
    generator: torch.Generator,
    tell: Callable[[int], None] = lambda iteration: None,
) -> None:
    """Move the flow by one step of size h."""

    def normal(count: int) -> Tensor:
        return torch.randn(count, target.dim, generator=generator)

    pool = torch.cat([nvp(normal(plan.batch))[0] for _ in range(-(-plan.pool // plan.batch))])
    adam = torch.optim.Adam(nvp.parameters, lr=plan.lr, fused=True)
    for iteration in range(plan.iterations):
        if iteration % REPORT_EVERY == 0:
            tell(iteration)
        if plan.lr_falls:
            adam.param_groups[0]["lr"] = plan.lr * (1 - iteration / plan.iterations)
        with torch.enable_grad():
            x, log_det = nvp(normal(plan.batch))
        previous = pool[torch.randint(len(pool), (plan.batch,), generator=generator)]
        directions = torch.nn.functional.normalize(normal(plan.directions))
        here = x.detach()
        slope = sliced_slope(here, previous, directions) + 2 * plan.h / plan.batch * target.gradient(here)
        adam.zero_grad()
        of_log_det = torch.full_like(log_det, -2 * plan.h * temperature / plan.batch)
        torch.autograd.backward((x, log_det), (slope, of_log_det))
        adam.step()


def sliced_distance(x: Tensor, y: Tensor, directions: Tensor) -> Tensor:
    """SW2^2 of two clouds of equal size along these unit vectors (P x D)."""
    return ((directions @ x.T).sort(1)[0] - (directions @ y.T).sort(1)[0]).square().mean()


def sliced_slope(x: Tensor, y: Tensor, directions: Tensor) -> Tensor:
    """Gradient of ``sliced_distance`` in x, B x D."""
    # numpy's sort is many times as fast as torch's on a CPU.
    projected, others = directions @ x.T, np.sort((directions @ y.T).numpy(), axis=1)
    subtract_partners(projected.numpy(), others)
    return projected.T @ directions * (2 / projected.numel())
