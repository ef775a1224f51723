"""Weight updates are minimisers that conserve the mass; resampling is unbiased and changes as little as possible."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core import step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.hyper import Hyper
from proxlearn.core.metrics import effective_sample_size
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.core.weight_updates import UPDATES, ess_below, resample_systematic
from tests.conftest import randomness

HYPER = Hyper(beta=50.0, h=0.3, epsilon=0.5, delta=1e-9, L=500, tolerance="log", orientation="consistent")


def cloud_of(seed: int, N: int, spread: float = 1.0) -> tuple[PointCloud, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(N, 4, generator=generator, dtype=torch.float64)
    return PointCloud(theta, spread * torch.randn(N, generator=generator, dtype=torch.float64) - 2), generator


def problem_of(generator: torch.Generator) -> Risk:
    X, y = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((9, 2), (9,)))
    return Risk.from_samples(Perceptron(), Samples(X, y))


@given(st.integers(0, 10**6), st.integers(2, 30), st.sampled_from(sorted(UPDATES)))
@settings(max_examples=60, deadline=None)
def test_every_update_keeps_the_mass_and_does_not_depend_on_the_order(seed: int, N: int, which: str) -> None:
    cloud, generator = cloud_of(seed, N)
    w = torch.randn(N, generator=generator, dtype=torch.float64)
    theta = cloud.theta + 0.1 * torch.randn(N, 4, generator=generator, dtype=torch.float64)
    _, z0 = randomness(cloud, generator)
    hyper = replace(HYPER, weights=which)
    log_rho, _ = UPDATES[which](cloud, theta, w, hyper, z0)
    assert float(log_rho.exp().sum()) == pytest.approx(float(cloud.rho.sum()), rel=1e-12)
    order = torch.randperm(N, generator=generator)
    mixed = PointCloud(cloud.theta[order], cloud.log_rho[order])
    again, _ = UPDATES[which](mixed, theta[order], w[order], hyper, z0[order])
    torch.testing.assert_close(again, log_rho[order], rtol=0, atol=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 30), st.floats(0.1, 1e5), st.floats(1e-3, 3))
@settings(max_examples=60, deadline=None)
def test_fisher_rao_is_the_minimiser_it_claims_to_be(seed: int, N: int, beta: float, h: float) -> None:
    """The derivative of KL(rho | rho_{k-1}) + h <w + log(rho)/beta, rho> at fixed mass is equal for all particles."""
    cloud, generator = cloud_of(seed, N)
    w = torch.randn(N, generator=generator, dtype=torch.float64)
    hyper = replace(HYPER, beta=beta, h=h)
    log_rho, _ = UPDATES["fisher_rao"](cloud, cloud.theta, w, hyper, torch.ones(N))
    slope = log_rho - cloud.log_rho + h * (w + log_rho / beta)
    torch.testing.assert_close(slope, slope.mean().expand(N), rtol=0, atol=1e-9)


@pytest.mark.parametrize("which", sorted(UPDATES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_fused_engine_makes_the_same_weights(which: str, dtype: torch.dtype) -> None:
    cloud, generator = cloud_of(3, 40)
    problem = problem_of(generator).to("cpu", dtype)
    cloud = cloud.to("cpu", dtype)
    noise, z0 = randomness(cloud, generator)
    hyper = replace(HYPER, weights=which, delta=1e-6)
    actual, info = FusedStep(problem, hyper, 40, threads=1)(cloud, noise, z0)
    expected, reference = step.step(problem, cloud, hyper, noise, z0)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(actual.log_rho, expected.log_rho, rtol=0, atol=tolerance)
    assert (info is None) == (reference is None) == (which != "proximal")


def test_uniform_weights_stay_and_the_others_favour_where_the_potential_is_low() -> None:
    cloud, generator = cloud_of(1, 25, spread=0.0)
    w = torch.randn(25, generator=generator, dtype=torch.float64)
    z0 = torch.ones(25, dtype=torch.float64)
    for which in UPDATES:
        update = UPDATES[which]
        log_rho, _ = update(cloud, cloud.theta, w, replace(HYPER, weights=which), z0)
        correlation = float(torch.corrcoef(torch.stack((log_rho, w)))[0, 1]) if which != "uniform" else 0.0
        assert torch.equal(log_rho, cloud.log_rho) if which == "uniform" else correlation < -0.3


@given(st.integers(0, 10**6), st.integers(1, 40), st.floats(0, 1, exclude_max=True))
@settings(max_examples=80, deadline=None)
def test_systematic_resampling_repeats_each_particle_its_share_of_times(seed: int, N: int, u: float) -> None:
    cloud, _ = cloud_of(seed, N, spread=2.0)
    actual = resample_systematic(cloud, u)
    shares = N * torch.softmax(cloud.log_rho, 0)
    counts = (actual.theta[None] == cloud.theta[:, None]).all(2).sum(1)
    assert bool((counts >= (shares - 1e-9).floor()).all() and (counts <= (shares + 1e-9).ceil()).all())
    assert float(actual.rho.sum()) == pytest.approx(float(cloud.rho.sum()), rel=1e-12)
    assert float(effective_sample_size(actual.log_rho)) == pytest.approx(N)
    assert (actual.step, actual.screen) == (cloud.step, None)


def test_systematic_resampling_is_unbiased_in_u() -> None:
    cloud, _ = cloud_of(4, 13, spread=2.0)
    grid = [(k + 0.5) / 4000 for k in range(4000)]
    mean = torch.stack([resample_systematic(cloud, u).theta.mean(0) for u in grid]).mean(0)
    expected = torch.softmax(cloud.log_rho, 0) @ cloud.theta
    torch.testing.assert_close(mean, expected, rtol=0, atol=2e-3)


def test_few_particles_with_most_of_the_mass_are_called_poor() -> None:
    log_rho = torch.tensor([0.0, math.log(1e-6), math.log(1e-6), math.log(1e-6)])
    assert ess_below(PointCloud(torch.zeros(4, 2), log_rho), 0.5)
    assert not ess_below(PointCloud(torch.zeros(4, 2), torch.zeros(4)), 0.5)
