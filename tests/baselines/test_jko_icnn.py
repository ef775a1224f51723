"""JKO-ICNN: on a Gaussian, its steps are those of implicit Euler in closed form, and the functional decreases."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from proxlearn.baselines.icnn import MIN_W
from proxlearn.baselines.jko_icnn import LIGHT, PAPER, fit, flow, make_net, pretrain, step
from proxlearn.baselines.registry import FittedMethod, Request
from proxlearn.baselines.sampler import draw_prior
from tests.baselines.targets import gaussian, implicit_euler, logistic_rows

SETTINGS = replace(LIGHT, width=16, steps=3, iterations=250, lr=1e-2, rank=2, batch=512, h=0.2)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@torch.no_grad()
def test_steps_are_those_of_implicit_euler(temperature: float, generator: torch.Generator) -> None:
    """Two coordinates of different curvature start from N(0, I); mean and spread are checked after each step."""
    target = gaussian((1.0, -2.0), ((4.0, 0.0), (0.0, 1.0)))
    x, _ = flow(target, SETTINGS, temperature, generator)
    for axis, (centre, kappa) in enumerate([(1.0, 4.0), (-2.0, 1.0)]):
        mean, std = 0.0, 1.0
        for _ in range(SETTINGS.steps):
            mean, std = implicit_euler(mean, std, centre, kappa, SETTINGS.h, temperature)
        # 4096 samples: a standard error of std / 64.
        assert abs(float(x[:, axis].mean()) - mean) < 0.04
        assert abs(float(x[:, axis].std()) / std - 1) < 0.05


@torch.no_grad()
def test_small_steps_follow_the_ornstein_uhlenbeck_process(generator: torch.Generator) -> None:
    """For V = |x - m|^2 / 2 from N(0, I), the mean at time t is m (1 - exp(-t)), and the spread stays 1, up to O(h)."""
    target = gaussian((2.0, 0.0), ((1.0, 0.0), (0.0, 1.0)))
    x, _ = flow(target, replace(SETTINGS, h=0.05, steps=6, iterations=150), 1.0, generator)
    assert abs(float(x[:, 0].mean()) - 2 * (1 - math.exp(-0.3))) < 0.06
    assert float((x.std(0) - 1).abs().max()) < 0.05


@torch.no_grad()
def test_density_is_followed_through_the_maps(generator: torch.Generator) -> None:
    """The ledger's E[log rho] is that of the Gaussian that the samples follow; each step decreases the functional."""
    x, notes = flow(gaussian(), SETTINGS, 1.0, generator)
    mean_log = notes["ledger"][-1]["functional"] - notes["ledger"][-1]["potential"]
    expected = -torch.distributions.MultivariateNormal(x.mean(0), torch.cov(x.T)).entropy()
    assert abs(mean_log - float(expected)) < 0.05
    assert [row.get("decreased") for row in notes["ledger"]] == [None, True, True, True]
    assert notes["iterations"] == SETTINGS.steps * SETTINGS.iterations


@torch.no_grad()
def test_stationary_density_stays(generator: torch.Generator) -> None:
    target = gaussian((0.0, 0.0, 0.0), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    pool = torch.randn(8192, 3, generator=generator)
    net = make_net(pool, SETTINGS, generator)
    step(target, pool, net, SETTINGS, 1.0, generator)
    mapped, _ = net.push(pool)
    assert float((mapped - pool).square().mean().sqrt()) < 0.05


@torch.no_grad()
def test_units_live_through_a_steep_potential(generator: torch.Generator) -> None:
    """The first gradient only decreases the curvature; the units that shift the mean must survive it."""
    target = gaussian((0.0, -4.0), ((1000.0, 0.0), (0.0, 5.0)))
    pool = torch.randn(4096, 2, generator=generator)
    settings = replace(SETTINGS, lr=1e-3, iterations=600, batch=128, h=0.1)
    net = make_net(pool, settings, generator)
    step(target, pool, net, settings, 1.0, generator)
    assert float((net.w > 10 * MIN_W).double().mean()) > 0.8
    mapped, _ = net.push(pool)
    # Implicit Euler would go to -4 / 3.
    assert float(mapped[:, 1].mean()) < -0.9


@torch.no_grad()
def test_pretrained_network_is_the_identity_by_its_units_alone(generator: torch.Generator) -> None:
    pool, _ = draw_prior(8192, 3, generator)
    net = pretrain(pool, replace(PAPER["banana"], width=32, batch=256, pretraining=800), generator)
    mapped, log_det = net.push(pool)
    assert float((mapped - pool).square().mean()) < 1e-3 * float(pool.square().mean())
    assert float(log_det.abs().mean()) < 0.05
    assert not net.lamda.any()
    other = deepcopy(net)
    torch.testing.assert_close(other.push(pool), (mapped, log_det), rtol=0, atol=0)
    other.flat.add_(1)
    other.clamp_()
    assert not other.lamda.any()
    torch.testing.assert_close(net.push(pool), (mapped, log_det), rtol=0, atol=0)


@torch.no_grad()
def test_published_start_takes_steps_of_implicit_euler(generator: torch.Generator) -> None:
    """The steps start from the prior, with its heavy tails, and use a pretrained network.

    With a quadratic V, the mean after a step depends only on the mean before it, because E[grad log rho] = 0. Before
    the first step, E[log alpha] = -log 100 - Euler's constant.
    """
    target = gaussian((40.0, 10.0), ((4.0, 0.0), (0.0, 1.0)))
    settings = replace(SETTINGS, from_prior=True, pretraining=600)
    x, notes = flow(target, settings, 1.0, generator)
    for axis, (mean, centre, kappa) in enumerate([(0.0, 40.0, 4.0), (-math.log(100) - 0.5772, 10.0, 1.0)]):
        for _ in range(settings.steps):
            mean, _ = implicit_euler(mean, 1.0, centre, kappa, settings.h, 1.0)
        assert abs(float(x[:, axis].mean()) - mean) < 0.02 * centre
    assert [row.get("decreased") for row in notes["ledger"]] == [None, True, True, True]


def test_preset_paper_goes_from_the_prior_with_bounded_likelihoods(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = logistic_rows(60)

    def fitted(**changes: float) -> FittedMethod:
        short = {"width": 8, "pool": 512, "batch": 64, "steps": 1, "iterations": 20, "pretraining": 200}
        monkeypatch.setitem(PAPER, "banana", replace(settings, **{**short, **changes}))  # type: ignore[arg-type]
        return fit(X, y, Request("banana", 0, "paper"))

    settings = PAPER["banana"]
    wide = fitted()
    assert min(wide.notes["theta_std"]) > 5
    assert np.abs(wide.probability(X) - fitted(least=0.0).probability(X)).max() > 0


def test_published_settings() -> None:
    for settings, expected in zip(
        (PAPER["banana"], PAPER["diabetes"], PAPER["twonorm"]),
        ((128, 5, 5000, 2e-4, 4e-3), (128, 16, 6000, 5e-5, 1e-3), (512, 7, 5000, 5e-5, 1e-4)),
        strict=True,
    ):
        assert (settings.width, settings.steps, settings.iterations, settings.lr, settings.pretraining_lr) == expected
        assert (settings.batch, settings.rank, settings.h) == (1024, 5, 0.1)
        assert (settings.from_prior, settings.pretraining, settings.least) == (True, 4000, 1e-5)
    assert LIGHT.steps * LIGHT.iterations < 2000
