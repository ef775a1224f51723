"""One recursion equals the paper's algorithms and is pure, equivariant and of weak order one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.core import literal, options, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.options import Schedule
from proxlearn.core.samples import Samples
from proxlearn.core.schedules import LOWEST, neighbour_quantile, schedule_factor
from tests.conftest import paper_cloud, randomness

WDBC = Hyper(beta=0.05, h=1e-3, epsilon=1.0, delta=1e-3, L=300)
kernels = pytest.mark.parametrize("kernel", ["dense", "log"])


def assert_same_cloud(actual: PointCloud, expected: PointCloud, rtol: float) -> None:
    torch.testing.assert_close(actual.theta, expected.theta, rtol=rtol, atol=rtol * 1e-2)
    torch.testing.assert_close(actual.rho, expected.rho, rtol=rtol, atol=0)


@kernels
def test_one_step_equals_one_literal_recursion_along_a_run(
    wdbc: Risk, generator: torch.Generator, kernel: options.Kernel
) -> None:
    hyper = replace(WDBC, kernel=kernel)
    cloud = paper_cloud(wdbc, 300, generator)
    for k in range(60):
        noise, z0 = randomness(cloud, generator)
        after, info = step.step(wdbc, cloud, hyper, noise, z0)
        if k % 3 == 0:
            printed, literal_info = literal.step(wdbc, cloud, hyper, noise, z0)
            assert_same_cloud(after, printed, rtol=1e-9)
            assert info is not None
            assert info.solution.rounds == literal_info.solution.rounds
        cloud = after


@kernels
def test_twenty_consecutive_steps_equal_the_literal_ones_on_standardised_data(
    standardised: Risk, generator: torch.Generator, kernel: options.Kernel
) -> None:
    hyper = replace(WDBC, kernel=kernel)
    ours = printed = paper_cloud(standardised, 200, generator)
    for _ in range(20):
        noise, z0 = randomness(ours, generator)
        ours, _ = step.step(standardised, ours, hyper, noise, z0)
        printed, _ = literal.step(standardised, printed, hyper, noise, z0)
    assert_same_cloud(ours, printed, rtol=1e-9)


@kernels
@pytest.mark.parametrize("orientation", ["paper", "consistent"])
def test_permuting_the_particles_permutes_the_result(
    standardised: Risk, generator: torch.Generator, kernel: options.Kernel, orientation: options.Orientation
) -> None:
    hyper = replace(WDBC, kernel=kernel, orientation=orientation)
    cloud = paper_cloud(standardised, 50, generator)
    cloud = replace(cloud, log_rho=cloud.log_rho + torch.randn(50, generator=generator, dtype=torch.float64))
    noise, z0 = randomness(cloud, generator)
    order = torch.randperm(50, generator=generator)
    after, _ = step.step(standardised, cloud, hyper, noise, z0)
    shuffled = PointCloud(cloud.theta[order], cloud.log_rho[order])
    permuted, _ = step.step(standardised, shuffled, hyper, noise[order], z0[order])
    assert_same_cloud(permuted, PointCloud(after.theta[order], after.log_rho[order]), rtol=1e-12)


def test_the_same_inputs_give_the_same_bits_and_are_left_alone(wdbc: Risk, generator: torch.Generator) -> None:
    cloud = paper_cloud(wdbc, 60, generator)
    noise, z0 = randomness(cloud, generator)
    inputs = [cloud.theta, cloud.log_rho, noise, z0]
    copies = [tensor.clone() for tensor in inputs]
    first, _ = step.step(wdbc, cloud, WDBC, noise, z0)
    second, _ = step.step(wdbc, cloud, WDBC, noise, z0)
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(first.log_rho, second.log_rho)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(inputs, copies, strict=True))


def test_float32_is_float64_to_its_rounding(standardised: Risk, generator: torch.Generator) -> None:
    cloud = paper_cloud(standardised, 80, generator)
    noise, z0 = randomness(cloud, generator)
    hyper = replace(WDBC, tolerance="log")
    exact, _ = step.step(standardised, cloud, hyper, noise, z0)
    single, _ = step.step(
        standardised.to("cpu", torch.float32), cloud.to("cpu", torch.float32), hyper, noise.float(), z0.float()
    )
    assert (single.theta.dtype, single.log_rho.dtype) == (torch.float32, torch.float64)
    assert_same_cloud(single.to("cpu", torch.float64), exact, rtol=1e-4)


def test_uniform_weights_make_no_proximal_step(wdbc: Risk, generator: torch.Generator) -> None:
    cloud = paper_cloud(wdbc, 30, generator)
    noise, z0 = randomness(cloud, generator)
    after, info = step.step(wdbc, cloud, replace(WDBC, weights="uniform"), noise, z0)
    proximal, _ = step.step(wdbc, cloud, WDBC, noise, z0)
    assert info is None
    assert torch.equal(after.log_rho, cloud.log_rho)
    assert torch.equal(after.theta, proximal.theta)


class QuadraticNeuron:
    """The neuron Phi = |theta|^2 / 2, whose drift is that of Ornstein-Uhlenbeck for y = -1/2 without interaction."""

    name, width = "quadratic", 1

    def coordinates(self, n_x: int) -> dict[str, int]:
        return {"w": n_x}

    def phi(self, theta: Tensor, samples: Samples) -> Tensor:
        return theta.square().sum(1, keepdim=True).expand(-1, len(samples)) / 2

    def respond(self, theta: Tensor, samples: Samples) -> QuadraticResponse:
        return QuadraticResponse(theta, self.phi(theta, samples))


class QuadraticResponse:
    def __init__(self, theta: Tensor, P: Tensor) -> None:
        self.theta, self.P = theta, P

    def over_particles(self, weights: Tensor) -> Tensor:
        return self.P.T @ weights

    def over_samples(self, vectors: Tensor) -> Tensor:
        return self.P @ vectors

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        total = c.sum() if rho is None or d is None else c.sum() + rho * d.sum()
        return self.theta * total.reshape(-1, 1)


@pytest.mark.parametrize("drift", ["paper", "first_variation"])
def test_the_error_of_the_mean_falls_linearly_in_h(generator: torch.Generator, drift: options.Drift) -> None:
    n, T, N = 5, 1.0, 64
    problem = Risk.from_samples(QuadraticNeuron(), Samples(torch.zeros(n, 3).double(), torch.full((n,), -0.5).double()))
    start = torch.randn(N // 2, 3, generator=generator, dtype=torch.float64) + 2
    errors, sizes = [], [0.1, 0.05, 0.025, 0.0125]
    for h in sizes:
        # Weights of e^-600: no interaction. Antithetic noise: the mean has no sampling error.
        cloud = PointCloud(torch.cat((start, start)), torch.full((N,), -600.0, dtype=torch.float64))
        hyper = Hyper(beta=2.0, h=h, epsilon=1.0, delta=1e-3, L=1, drift=drift, weights="uniform")
        for _ in range(round(T / h)):
            half = torch.randn(N // 2, 3, generator=generator, dtype=torch.float64)
            cloud, _ = step.step(problem, cloud, hyper, torch.cat((half, -half)), torch.ones(N).double())
        errors.append(float((cloud.theta.mean(0) - math.exp(-T) * start.mean(0)).norm()))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert 0.95 < slope < 1.1


def test_the_noise_has_the_temperature_of_the_equation(generator: torch.Generator) -> None:
    """The stationary variance of the discretised Ornstein-Uhlenbeck process is 1 / (beta (1 - h/2))."""
    n, N, h, beta = 2, 20000, 0.1, 4.0
    problem = Risk.from_samples(QuadraticNeuron(), Samples(torch.zeros(n, 1).double(), torch.full((n,), -0.5).double()))
    cloud = PointCloud(torch.zeros(N, 1).double(), torch.full((N,), -600.0, dtype=torch.float64))
    hyper = Hyper(beta=beta, h=h, epsilon=1.0, delta=1e-3, L=1, weights="uniform")
    for _ in range(80):
        cloud, _ = step.step(problem, cloud, hyper, *randomness(cloud, generator))
    assert float(cloud.theta.var()) == pytest.approx(1 / (beta * (1 - h / 2)), rel=0.04)


@pytest.mark.parametrize(
    "drift, kernel, orientation, tolerance",
    list(itertools.product(("paper", "first_variation"), ("dense", "log"), ("paper", "consistent"), ("paper", "log"))),
)
def test_no_tensor_of_a_step_strays_to_another_device(
    drift: options.Drift, kernel: options.Kernel, orientation: options.Orientation, tolerance: options.Tolerance
) -> None:
    """A meta tensor mixed with one of another device raises an error; with delta=0, no value is read."""
    hyper = Hyper(
        beta=0.05,
        h=1e-3,
        epsilon=1.0,
        delta=0.0,
        L=5,
        drift=drift,
        kernel=kernel,
        orientation=orientation,
        tolerance=tolerance,
    )

    def meta(*shape: int) -> Tensor:
        return torch.empty(*shape, device="meta", dtype=torch.float32)

    problem = Risk.from_samples(Perceptron(), Samples(meta(9, 4), meta(9)))
    cloud = PointCloud(meta(7, 6), meta(7))
    after, info = step.step(problem, cloud, hyper, meta(7, 6), meta(7))
    assert info is not None
    figures = [*info.prox_objective(), info.kernel_offdiag(), info.solution.error]
    assert (after.theta.dtype, after.log_rho.dtype) == (torch.float32, torch.float64)
    for tensor in (after.theta, after.log_rho, *figures):
        assert tensor.device.type == "meta"
    with pytest.raises(RuntimeError, match="device"):
        step.step(problem, replace(cloud, log_rho=torch.zeros(7)), hyper, meta(7, 6), meta(7))


# What changes along a run: falling factors, and the length that a relative epsilon is counted in.
@given(st.sampled_from(["constant", "cosine", "power"]), st.integers(1, 5000))
@settings(max_examples=30, deadline=None)
def test_factors_start_at_one_and_never_rise_nor_vanish(kind: Schedule, horizon: int) -> None:
    steps = sorted({0, 1, horizon // 3, horizon // 2, horizon, 2 * horizon, 10 * horizon})
    factors = [schedule_factor(kind, step, horizon) for step in steps]
    assert factors[0] == 1.0
    assert all(b <= a for a, b in itertools.pairwise(factors))
    assert factors[-1] > 0
    ends = {"constant": 1.0, "cosine": LOWEST, "power": 0.1}
    assert schedule_factor(kind, horizon, horizon) == pytest.approx(ends[kind])


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.floats(0, 0.99))
@settings(max_examples=40, deadline=None)
def test_the_length_scales_with_the_cloud_and_does_not_move_with_it(seed: int, factor: float, q: float) -> None:
    theta = torch.randn(50, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    length = neighbour_quantile(theta, q)
    assert neighbour_quantile(factor * theta + 7, q) == pytest.approx(factor**2 * length, rel=1e-6)


def test_the_length_is_that_of_nearest_neighbours_and_twins_are_none() -> None:
    grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    assert neighbour_quantile(0.5 * grid, 0.5) == pytest.approx(0.25)
    assert neighbour_quantile(torch.cat((grid, grid)), 0.5) == pytest.approx(1.0)
    assert neighbour_quantile(torch.zeros(5, 2), 0.5) is None
