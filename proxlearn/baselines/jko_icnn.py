"""JKO-ICNN (Mokrov et al. 2021): each implicit Euler step of the Wasserstein gradient flow is the gradient of a convex
network.

Step k minimises over convex f, with Adam,

    E_{rho_k} [ |grad f - x|^2 / 2 + h (V(grad f) - T log det Hess f) ]

and pushes the particles through grad f. Only the slope of that is needed, never its value: an iteration computes V's
gradient and the inverse of the Hessian, and pulls both back through the closed forms of ``icnn``.

Beyond the published settings: each step begins with the identity (lambda = 1) instead of a pretrained network, and
batches are drawn from a pool of particles that is pushed once a step, instead of being pushed anew through all earlier
maps at every iteration. The samples behind a prediction are none of the pool's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.icnn import ConvexNet
from proxlearn.baselines.icnn_passes import adam
from proxlearn.baselines.logistic_target import Potential
from proxlearn.baselines.method import Fitted, Request
from proxlearn.baselines.sampler import SAMPLES, Ledger, Sampled, choose, fit_sampler, ledger_row, standard_normal

TOLD_EVERY = 500


@dataclass(frozen=True)
class Plan:
    """Everything but the target and the temperature."""

    width: int
    steps: int
    iterations: int
    lr: float
    data_batch: int | None = None
    """Rows behind V's gradient at an iteration; None is all of them."""
    rank: int = 5
    batch: int = 1024
    pool: int = 65536
    h: float = 0.1


LIGHT = Plan(width=48, steps=6, iterations=250, lr=2e-2, rank=3, batch=256, pool=8192)
PAPER = {
    "banana": Plan(width=128, steps=5, iterations=5000, lr=2e-4, data_batch=512),
    # Published as 614, which is the whole training part.
    "diabetes": Plan(width=128, steps=16, iterations=6000, lr=5e-5),
    "twonorm": Plan(width=512, steps=7, iterations=5000, lr=5e-5, data_batch=512),
}


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> Fitted:
    """Samples of the posterior by the plan of the preset."""
    plan = choose(request, LIGHT, PAPER)
    return fit_sampler(
        X, y, request, lambda target, generator: flow(target, plan, request.temperature, generator, request.progress)
    )


def flow(
    target: Potential,
    plan: Plan,
    temperature: float,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> Sampled:
    """All steps from N(0, I): samples that no network has seen in training, and the ledger."""
    pool, _ = standard_normal(plan.pool, target.dim, generator)
    x, log_rho = standard_normal(SAMPLES, target.dim, generator)
    ledger: Ledger = []
    ledger_row(target, x, log_rho, temperature, ledger)
    for k in range(plan.steps):

        def tell(iteration: int, k: int = k) -> None:
            progress(f"JKO step {k + 1}/{plan.steps}, iteration {iteration}/{plan.iterations}")

        net = step(target, pool, plan, temperature, generator, tell)
        pool, _ = net.push(pool)
        x, log_det = net.push(x)
        log_rho = log_rho - log_det
        ledger_row(target, x, log_rho, temperature, ledger)
    return x, {"steps": plan.steps, "iterations": plan.steps * plan.iterations, "ledger": ledger}


def step(
    target: Potential,
    pool: Tensor,
    plan: Plan,
    temperature: float,
    generator: torch.Generator,
    tell: Callable[[int], None] = lambda iteration: None,
) -> ConvexNet:
    """The convex network whose gradient is one step of size h from the pool's density."""
    net = ConvexNet(target.dim, plan.width, plan.rank, generator, pool.dtype)
    first, second = np.zeros_like(net.flat.numpy()), np.zeros_like(net.flat.numpy())
    for iteration in range(plan.iterations):
        if iteration % TOLD_EVERY == 0:
            tell(iteration)
        x = pool[torch.randint(len(pool), (plan.batch,), generator=generator)]
        rows = target.data_batch(plan.data_batch, generator)
        packed = net.pack()
        now = packed.respond(x)
        slope = now.mapped - x + plan.h * target.gradient(now.mapped, rows)
        now.pull_back(slope / plan.batch, log_det=-plan.h * temperature / plan.batch)
        adam(net.flat.numpy(), packed.gradient().numpy(), first, second, plan.lr, iteration + 1)
        net.clamp_()
    return net
