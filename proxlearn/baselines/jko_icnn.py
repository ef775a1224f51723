"""JKO-ICNN (Mokrov et al. 2021): implicit steps of the Wasserstein gradient flow with convex networks.

Step k is an implicit Euler step. It uses Adam to minimise, over convex networks f,

    E_{rho_k} [ |grad f - x|^2 / 2 + h (V(grad f) - T log det Hess f) ]

and then maps the particles by grad f. Adam needs only the gradient of this objective: each iteration computes the
gradient of V and the inverse of the Hessian, and backpropagates both through the closed forms in icnn.py.

The preset ``paper`` starts like the published code, from particles of the prior, which is far wider than the posterior.
Each step begins with a network that was pretrained to approximate the identity map, and the likelihoods are bounded
from below, so that a badly misclassified row does not contribute to the gradient. On diabetes and twonorm, the
particles are still far from the posterior after the published number of steps, as the ledger of the functional shows.
The preset ``light`` starts from N(0, I), and each step begins with a network that is nearly the identity (lambda = 1).

Differences from the published code: batches are drawn from a pool of particles that is mapped once per step, instead of
being mapped by all earlier networks at every iteration; data batches are drawn with replacement; and the samples used
for prediction are not in the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.icnn import ConvexNet
from proxlearn.baselines.icnn_kernels import adam_step
from proxlearn.baselines.logistic_target import LogisticTarget, Potential
from proxlearn.baselines.registry import FittedMethod, Request
from proxlearn.baselines.sampler import (
    NUM_SAMPLES,
    Ledger,
    SampleResult,
    append_ledger_row,
    draw_prior,
    draw_standard_normal,
    fit_sampler,
    make_settings_function,
    request_settings,
)

REPORT_EVERY = 500
WIDE_STD = 10.0
"""Standard deviation of the Gaussian on which a network is pretrained before it is pretrained on the prior."""


@dataclass(frozen=True)
class JkoIcnnSettings:
    """The settings of JKO-ICNN, apart from the temperature."""

    width: int
    steps: int
    iterations: int
    lr: float
    data_batch: int | None = None
    """Number of data rows from which an iteration computes the gradient of V; None for all rows."""
    rank: int = 5
    batch: int = 1024
    pool: int = 65536
    h: float = 0.1
    from_prior: bool = True
    """Whether the particles start from the prior; otherwise they start from N(0, I)."""
    pretraining: int = 4000
    """Number of iterations of each of the two pretrainings; if 0, the network is initialised near the identity."""
    pretraining_lr: float = 1e-3
    least: float = 1e-5
    """Lower bound of the likelihood of each row."""


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
    # The published data batch is 614 rows, which is the whole training part.
    "diabetes": JkoIcnnSettings(width=128, steps=16, iterations=6000, lr=5e-5),
    "twonorm": JkoIcnnSettings(width=512, steps=7, iterations=5000, lr=5e-5, data_batch=512, pretraining_lr=1e-4),
}
settings = make_settings_function(LIGHT, PAPER)


def fit(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Sample the posterior given the rows, and return a predictor that averages over the samples."""
    settings = request_settings(request, LIGHT, PAPER)

    def sample(target: LogisticTarget, generator: torch.Generator) -> SampleResult:
        bounded = replace(target, least=settings.least)
        return flow(bounded, settings, request.temperature, generator, request.progress)

    return fit_sampler(X, y, request, sample)


def flow(
    target: Potential,
    settings: JkoIcnnSettings,
    temperature: float,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> SampleResult:
    """Run all JKO steps; return samples that were not used to train the networks, and notes with the ledger."""
    start = draw_prior if settings.from_prior else draw_standard_normal
    pool, _ = start(settings.pool, target.dim, generator)
    x, log_rho = start(NUM_SAMPLES, target.dim, generator)
    pretrained = pretrain(pool, settings, generator, progress) if settings.pretraining else None
    ledger: Ledger = []
    append_ledger_row(target, x, log_rho, temperature, ledger)
    for k in range(settings.steps):

        def report(iteration: int, k: int = k) -> None:
            progress(f"JKO step {k + 1}/{settings.steps}, iteration {iteration}/{settings.iterations}")

        net = deepcopy(pretrained) if pretrained else make_net(pool, settings, generator)
        step(target, pool, net, settings, temperature, generator, report)
        pool, _ = net.push(pool)
        x, log_det = net.push(x)
        log_rho = log_rho - log_det
        append_ledger_row(target, x, log_rho, temperature, ledger)
    return x, {"steps": settings.steps, "iterations": settings.steps * settings.iterations, "ledger": ledger}


def make_net(pool: Tensor, settings: JkoIcnnSettings, generator: torch.Generator) -> ConvexNet:
    """Return a new network: nearly the identity, or a random network if the settings include pretraining."""
    with_lamda = not settings.pretraining
    return ConvexNet(pool.shape[1], settings.width, settings.rank, generator, pool.dtype, with_lamda=with_lamda)


def pretrain(
    pool: Tensor,
    settings: JkoIcnnSettings,
    generator: torch.Generator,
    progress: Callable[[str], None] = lambda text: None,
) -> ConvexNet:
    """Return a network fitted to the identity by least squares, first on a wide Gaussian and then on the pool."""
    net = make_net(pool, settings, generator)
    pretraining = replace(settings, iterations=settings.pretraining, lr=settings.pretraining_lr)

    def gradient(x: Tensor, mapped: Tensor) -> Tensor:
        return 2 / x.shape[1] * (mapped - x)

    wide = WIDE_STD * torch.randn(pool.shape, generator=generator)
    for name, particles in (("on a wide Gaussian", wide), ("on the initial particles", pool)):

        def report(iteration: int, name: str = name) -> None:
            progress(f"pretraining {name}, iteration {iteration}/{settings.pretraining}")

        descend(net, particles, gradient, 0.0, pretraining, generator, report)
    return net


def step(
    target: Potential,
    pool: Tensor,
    net: ConvexNet,
    settings: JkoIcnnSettings,
    temperature: float,
    generator: torch.Generator,
    report: Callable[[int], None] = lambda iteration: None,
) -> None:
    """Train the network so that its gradient map moves the particles of the pool by one implicit step of size h."""

    def gradient(x: Tensor, mapped: Tensor) -> Tensor:
        rows = target.data_batch(settings.data_batch, generator)
        return mapped - x + settings.h * target.gradient(mapped, rows)

    descend(net, pool, gradient, -settings.h * temperature, settings, generator, report)


def descend(
    net: ConvexNet,
    pool: Tensor,
    gradient: Callable[[Tensor, Tensor], Tensor],
    log_det: float,
    settings: JkoIcnnSettings,
    generator: torch.Generator,
    report: Callable[[int], None],
) -> None:
    """Train the network with Adam to minimise the mean of a function over the pool.

    ``gradient(x, mapped)`` returns the gradient of the function with respect to the mapped particles. The term
    ``log_det`` * log det Hess f is added to the function.
    """
    first, second = np.zeros_like(net.flat.numpy()), np.zeros_like(net.flat.numpy())
    for iteration in range(settings.iterations):
        if iteration % REPORT_EVERY == 0:
            report(iteration)
        x = pool[torch.randint(len(pool), (settings.batch,), generator=generator)]
        packed = net.pack()
        response = packed.respond(x)
        response.pull_back(gradient(x, response.mapped) / settings.batch, log_det=log_det / settings.batch)
        adam_step(net.flat.numpy(), packed.gradient().numpy(), first, second, settings.lr, iteration + 1)
        net.clamp_()
