"""The solutions of the flows: finite volumes, closed forms, and the exact solution for a given Brownian path."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.verify.finite_volumes import Grid, GridFlow, implicit_step, local_orders, spatial_errors, temporal_errors
from proxlearn.verify.gaussian_flow import GaussianFlow
from proxlearn.verify.known_flow import generator
from proxlearn.verify.law import distances, fit_order, wasserstein, weak_errors
from proxlearn.verify.ornstein_uhlenbeck import OrnsteinUhlenbeck, OrnsteinUhlenbeckOnGrid
from proxlearn.verify.plan import CLOSED_FORM, ON_GRID, make_flow
from proxlearn.verify.quadratic_interaction import QuadraticInteraction

potentials = st.lists(st.floats(-50, 50), min_size=3, max_size=30)


@settings(deadline=None)
@given(potentials, st.floats(1e-4, 1e3), st.floats(0.1, 10), st.integers(0, 2**32 - 1))
def test_a_step_of_finite_volumes_keeps_mass_and_sign_for_every_potential_and_step(
    phi: list[float], dt: float, beta: float, seed: int
) -> None:
    masses = np.random.default_rng(seed).exponential(size=len(phi))
    after = implicit_step(masses, np.array(phi), beta, 0.1, dt)
    assert after.min() >= 0
    assert after.sum() == pytest.approx(masses.sum(), rel=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=30), st.floats(0.1, 3))
def test_the_gibbs_masses_are_the_equilibrium_of_finite_volumes(phi: list[float], beta: float) -> None:
    gibbs = np.exp(-beta * np.array(phi))
    np.testing.assert_allclose(implicit_step(gibbs, np.array(phi), beta, 0.1, 0.3), gibbs, rtol=1e-9)


@pytest.mark.parametrize("name", ON_GRID)
def test_the_potential_on_a_grid_is_the_first_variation_of_the_functional(name: str) -> None:
    flow = make_flow(name)
    assert isinstance(flow, GridFlow)
    grid = Grid(flow.low, flow.high, 60)
    masses = flow.initial_masses(grid)
    theta, rho = torch.from_numpy(grid.centres)[:, None], torch.from_numpy(masses)
    variation = flow.functional.first_variation(theta, rho).numpy()
    np.testing.assert_allclose(flow.potential(grid.centres)(masses), variation, atol=1e-12)


@pytest.mark.parametrize("name", ["ornstein_uhlenbeck-1", *ON_GRID])
def test_the_solver_has_order_2_in_space_and_1_in_time(name: str) -> None:
    flow = OrnsteinUhlenbeckOnGrid() if name.startswith("ornstein") else make_flow(name)
    assert isinstance(flow, GridFlow)
    assert min(local_orders(spatial_errors(flow, (100, 200), 50))) >= 1.9
    assert min(local_orders(temporal_errors(flow, 100, (100, 200)))) >= 0.9


def test_finite_volumes_agree_with_the_closed_form() -> None:
    on_grid, closed = OrnsteinUhlenbeckOnGrid(), OrnsteinUhlenbeck(1)
    exact = on_grid.exact_masses(on_grid.grid.edges)
    assert np.abs(on_grid.masses(1.0) - exact).sum() < 5e-4
    assert on_grid.free_energy(1.0) == pytest.approx(closed.free_energy(1.0), abs=5e-4)
    theta = closed.draw(50, generator(0))
    distance = [flow.squared_energy_distance(theta, 0.5) for flow in (on_grid, closed)]
    assert distance[0] == pytest.approx(distance[1], rel=0.02)
    assert wasserstein(on_grid, theta, 0.5) == pytest.approx(wasserstein(closed, theta, 0.5), rel=0.01)


@pytest.mark.parametrize("name", [*CLOSED_FORM, *ON_GRID])
def test_the_free_energy_of_the_solution_falls(name: str) -> None:
    flow = make_flow(name)
    values = [flow.free_energy(time) for time in np.linspace(0, flow.horizon, 5)]
    assert all(after < before for before, after in itertools.pairwise(values))


@pytest.mark.parametrize("p", [1, 3, 32])
def test_the_energy_distance_to_a_normal_law_is_that_of_a_large_sample(p: int) -> None:
    flow = OrnsteinUhlenbeck(p)
    theta = flow.draw(40, generator(1)) + 0.3
    sample = flow.draw(4000, generator(2))
    cross = float(torch.cdist(theta, sample).mean())
    within, between = float(torch.cdist(theta, theta).mean()), 2 * float(torch.pdist(sample).mean())
    expected = 2 * cross - within - between / 2
    assert flow.squared_energy_distance(theta, 0.0) == pytest.approx(expected, abs=0.05 * cross)


@pytest.mark.parametrize("h, N", [(0.05, 1), (0.5, 7), (2.0, 20)])
def test_the_exact_step_is_the_limit_of_small_euler_steps_on_the_same_path(h: float, N: int) -> None:
    flow, parts = QuadraticInteraction(2), 2000
    rng = generator(N)
    theta = start = flow.draw(N, rng)
    increments = torch.randn(parts, N, 2, generator=rng, dtype=torch.float64) * math.sqrt(h / parts)
    weighted = torch.zeros_like(theta)
    for k in range(parts):
        weighted = weighted * math.exp(-h / parts) + increments[k]
        theta = theta - h / parts * (theta - theta.mean(0)) + math.sqrt(2) * increments[k]
    # ``further`` is the part of the integral of exp(-(h - s)) dB that the increment does not determine; the mean mode
    # has rate 0, whose integral is the increment itself.
    noise = increments.sum(0) / math.sqrt(h)
    covariance, variance = -math.expm1(-h), -math.expm1(-2 * h) / 2
    further = (weighted - covariance / math.sqrt(h) * noise) / math.sqrt(variance - covariance**2 / h)
    torch.testing.assert_close(flow.exact_step(start, h, noise, further), theta, rtol=0, atol=0.02 * max(1.0, h))


def test_the_moments_of_the_exact_step_are_those_of_the_law() -> None:
    flow = OrnsteinUhlenbeck(1)
    rng = generator(3)
    theta = flow.draw(200_000, rng)
    for _ in range(3):
        noise, further = (torch.randn(theta.shape, generator=rng, dtype=torch.float64) for _ in range(2))
        theta = flow.exact_step(theta, 0.2, noise, further)
    assert float(theta.mean()) == pytest.approx(flow.mean(0.6), abs=0.01)
    assert float(theta.var()) == pytest.approx(flow.variance(0.6), abs=0.01)


@pytest.mark.parametrize("name", ["ornstein_uhlenbeck-1", "ornstein_uhlenbeck-32", "quadratic_interaction-1"])
def test_the_recursion_has_weak_order_1(name: str) -> None:
    flow, steps = make_flow(name), (10, 20, 40)
    assert isinstance(flow, GaussianFlow)
    errors = [weak_errors(flow, 500, steps, seed) for seed in range(4)]
    for moment in flow.moments:
        assert 0.8 < fit_order([1 / k for k in steps], [row[moment] for row in errors]).value < 1.2


def test_the_root_of_the_energy_distance_falls_as_the_root_of_N() -> None:
    sizes = (25, 100, 400)
    rows = [distances(OrnsteinUhlenbeck(5), sizes, 1 / 32, seed)["energy"] for seed in range(10)]
    assert 0.4 < fit_order([1 / N for N in sizes], rows).value < 0.6
