"""JKO-ICNN (Mokrov et al. 2021): each implicit Euler step of the Wasserstein gradient flow is the gradient of a convex
network.

Step k minimises over convex f, with Adam,

    E_{rho_k} [ |grad f - x|^2 / 2 + h (V(grad f) - T log det Hess f) ]

and pushes the particles through grad f. Only the slope of that is needed, never its value: an iteration computes V's
gradient and the inverse of the Hessian, and pulls both back through the closed forms of ``icnn``.

The preset ``paper`` begins as the published code does: with particles of the prior, far wider than the posterior; each
step with a network that was pretrained to be the identity; and likelihoods bounded from below, so that a row which
theta gets very wrong has no say. So begun, the published number of steps ends far from the posterior on diabetes and
twonorm: the ledger says how far. The preset ``light`` begins with N(0, I), and each step with the identity itself
(lambda = 1).

Beyond the published settings: batches are drawn from a pool of particles that is pushed once a step, instead of being
pushed anew through all earlier maps at every iteration, and data batches with replacement; the samples behind a
prediction are none of the pool's.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.icnn import ConvexNet
from proxlearn.baselines.icnn_kernels import adam
from proxlearn.baselines.logistic_target import LogisticTarget, Potential
from proxlearn.baselines.method import FittedMethod, Request
from proxlearn.baselines.sampler import (
    SAMPLES,
    Ledger,
    Sampled,
    choose,
    fit_sampler,
    ledger_row,
    prior,
    settings_dict,
    standard_normal,
)

REPORT_EVERY = 500
WIDE = 10.0
"""Of the published pretraining: first on N(0, WIDE^2 I), then on the prior."""


@dataclass(frozen=True)
class JkoIcnnSettings:
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
    from_prior: bool = True
    """Else the particles begin with N(0, I)."""
    pretraining: int = 4000
    """Iterations, of each of two kinds, until the first network is the identity; 0: a network that begins as it."""
    pretraining_lr: float = 1e-3
    least: float = 1e-5
    """Bound of the likelihoods."""


LIGHT = JkoIcnnSettings(
    width=48,
    steps=6,
    iterations=250,
    lr=2e-2,
    rank=3,
    batch=256,
    pool=8192,
    from_prior=False,
    pretraining=0,
    least=0.0,
)
PAPER = {
    "banana": JkoIcnnSettings(width=128, steps=5, iterations=5000, lr=2e-4, data_batch=512, pretraining_lr=4e-3),
    # Published as 614, which is the whole training part.
    "diabetes": JkoIcnnSettings(width=128, steps=16, iterations=6000, lr=5e-5),
    "twonorm": JkoIcnnSettings(width=512, steps=7, iterations=5000, lr=5e-5, data_batch=512, pretraining_lr=1e-4),
}
settings = settings_dict(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Samples on their way to the posterior, by the plan of the preset."""
    plan = choose(request, LIGHT, PAPER)

    def sample(target: LogisticTarget, generator: torch.Generator) -> Sampled:
        bounded = replace(target, least=plan.least)
        return flow(bounded, plan, request.temperature, generator, request.progress)

    return fit_sampler(X, y, request, sample)


def flow(
    target: Potential,
    plan: JkoIcnnSettings,
    temperature: float,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> Sampled:
    """All steps: samples that no network has seen in training, and the ledger."""
    start = prior if plan.from_prior else standard_normal
    pool, _ = start(plan.pool, target.dim, generator)
    x, log_rho = start(SAMPLES, target.dim, generator)
    pretrained = pretrain(pool, plan, generator, progress) if plan.pretraining else None
    ledger: Ledger = []
    ledger_row(target, x, log_rho, temperature, ledger)
    for k in range(plan.steps):

        def tell(iteration: int, k: int = k) -> None:
            progress(f"JKO step {k + 1}/{plan.steps}, iteration {iteration}/{plan.iterations}")

        net = deepcopy(pretrained) if pretrained else new_net(pool, plan, generator)
        step(target, pool, net, plan, temperature, generator, tell)
        pool, _ = net.push(pool)
        x, log_det = net.push(x)
        log_rho = log_rho - log_det
        ledger_row(target, x, log_rho, temperature, ledger)
    return x, {"steps": plan.steps, "iterations": plan.steps * plan.iterations, "ledger": ledger}


def new_net(pool: Tensor, plan: JkoIcnnSettings, generator: torch.Generator) -> ConvexNet:
    """Nearly the identity, unless it is still to be pretrained."""
    with_lamda = not plan.pretraining
    return ConvexNet(pool.shape[1], plan.width, plan.rank, generator, pool.dtype, with_lamda=with_lamda)


def pretrain(
    pool: Tensor, plan: JkoIcnnSettings, generator: torch.Generator, progress: Callable[[str], None] = lambda text: None
) -> ConvexNet:
    """A network without lambda whose gradient is the identity, first far and wide, then on the pool: least squares."""
    net = new_net(pool, plan, generator)
    towards = replace(plan, iterations=plan.pretraining, lr=plan.pretraining_lr)

    def slope(x: Tensor, mapped: Tensor) -> Tensor:
        return 2 / x.shape[1] * (mapped - x)

    for where, particles in (("widely", WIDE * torch.randn(pool.shape, generator=generator)), ("at the start", pool)):

        def tell(iteration: int, where: str = where) -> None:
            progress(f"pretraining {where}, iteration {iteration}/{plan.pretraining}")

        descend(net, particles, slope, 0.0, towards, generator, tell)
    return net


def step(
    target: Potential,
    pool: Tensor,
    net: ConvexNet,
    plan: JkoIcnnSettings,
    temperature: float,
    generator: torch.Generator,
    tell: Callable[[int], None] = lambda iteration: None,
) -> None:
    """Train the network until its gradient is one step of size h from the pool's density."""

    def slope(x: Tensor, mapped: Tensor) -> Tensor:
        rows = target.data_batch(plan.data_batch, generator)
        return mapped - x + plan.h * target.gradient(mapped, rows)

    descend(net, pool, slope, -plan.h * temperature, plan, generator, tell)


def descend(
    net: ConvexNet,
    pool: Tensor,
    slope: Callable[[Tensor, Tensor], Tensor],
    log_det: float,
    plan: JkoIcnnSettings,
    generator: torch.Generator,
    tell: Callable[[int], None],
) -> None:
    """Adam on the mean over the pool of something that has this slope in the mapped particles, + log_det log det."""
    first, second = np.zeros_like(net.flat.numpy()), np.zeros_like(net.flat.numpy())
    for iteration in range(plan.iterations):
        if iteration % REPORT_EVERY == 0:
            tell(iteration)
        x = pool[torch.randint(len(pool), (plan.batch,), generator=generator)]
        packed = net.pack()
        now = packed.respond(x)
        now.pull_back(slope(x, now.mapped) / plan.batch, log_det=log_det / plan.batch)
        adam(net.flat.numpy(), packed.gradient().numpy(), first, second, plan.lr, iteration + 1)
        net.clamp_()
