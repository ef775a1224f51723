"""The solutions of the flows: finite volumes, closed forms, and the exact solution for a given Brownian path.

What the weights converge to: the smoothing step, its fixed point, and the share of the energy.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn import flow as recursion
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.energy import Energy
from proxlearn.core.hyper import Hyper, energy_share
from proxlearn.core.kernels.kernel import squared_distances
from proxlearn.verify.density_weights import WeightsSetting, agreement, compare_weights, kernel_density
from proxlearn.verify.finite_volumes import (
    GridFlow,
    UniformGrid,
    implicit_step,
    local_orders,
    solve,
    spatial_errors,
    temporal_errors,
)
from proxlearn.verify.gaussian_flow import (
    GaussianFlow,
    OrnsteinUhlenbeck,
    OrnsteinUhlenbeckOnGrid,
    QuadraticInteraction,
)
from proxlearn.verify.known_flow import BlindFunctional, generator
from proxlearn.verify.law import distances, fit_order, wasserstein, weak_errors
from proxlearn.verify.many_particle_limit import exponent, gaussian_exponents, limit_of_weights
from proxlearn.verify.one_dimensional_flows import CONFINEMENT, SAMPLES, TARGETS, DoubleWell, OneParameterNetwork
from proxlearn.verify.plan import CLOSED_FORM, ON_GRID, make_flow

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
    grid = UniformGrid(flow.low, flow.high, 60)
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


def test_the_printed_equation_is_the_gradient_flow_of_another_network() -> None:
    flow = OneParameterNetwork()
    grid = UniformGrid(flow.low, flow.high, 200)
    outputs, n = np.tanh(grid.centres[:, None] * SAMPLES), len(SAMPLES)

    def variation(masses: np.ndarray, factor: float, targets: np.ndarray, confinement: float) -> np.ndarray:
        V, U_p = -2 * outputs @ targets / n, outputs @ (masses @ outputs) / n
        return np.asarray(V + factor * U_p + confinement / 2 * grid.centres**2)

    start, twice = flow.initial_masses(grid), 2 * TARGETS
    printed = solve(lambda m: variation(m, 1, TARGETS, CONFINEMENT), start, grid, flow.beta, 4.0, 400)[-1]
    other = solve(lambda m: variation(m, 2, twice, 2 * CONFINEMENT), start, grid, flow.beta / 2, 2.0, 400)[-1]
    gradient_flow = solve(lambda m: variation(m, 2, TARGETS, CONFINEMENT), start, grid, flow.beta, 4.0, 400)[-1]
    np.testing.assert_allclose(printed, other, atol=1e-12)
    np.testing.assert_allclose(gradient_flow, solve(flow.potential(grid.centres), start, grid, 20.0, 4.0, 400)[-1])
    assert np.abs(printed - gradient_flow).sum() > 0.1


def test_finite_volumes_agree_with_the_closed_form() -> None:
    on_grid, closed = OrnsteinUhlenbeckOnGrid(), OrnsteinUhlenbeck(1)
    exact = on_grid.exact_masses(on_grid.grid.edges)
    assert np.abs(on_grid.masses(1.0) - exact).sum() < 5e-4
    assert on_grid.free_energy(1.0) == pytest.approx(closed.free_energy(1.0), abs=5e-4)
    theta = closed.draw(50, generator(0))
    distance = [flow.energy_distance(theta, 0.5) for flow in (on_grid, closed)]
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
    assert flow.energy_distance(theta, 0.0) == pytest.approx(expected, abs=0.05 * cross)


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


def still(theta: torch.Tensor) -> torch.Tensor:
    """An energy whose gradient is 0: the particles stay, and w differs between halves of the line."""
    return torch.sign(theta[0])


clouds = st.tuples(st.integers(2, 30), st.integers(1, 3), st.integers(0, 10**6))
few = settings(max_examples=30, deadline=None)


def draw_gibbs(cloud: tuple[int, int, int], epsilon: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return theta, rho and the Gibbs matrix of a random cloud (N, p, seed)."""
    N, p, seed = cloud
    rng = generator(seed)
    theta, rho = torch.randn(N, p, generator=rng, dtype=torch.float64), torch.rand(N, generator=rng).double() + 0.1
    return theta, rho, torch.exp(-squared_distances(theta, theta) / (2 * epsilon))


@few
@given(clouds, st.floats(0.05, 5))
def test_at_large_kappa_the_step_is_a_smoothing_that_does_not_see_the_energy(
    cloud: tuple[int, int, int], epsilon: float
) -> None:
    theta, rho, Gamma = draw_gibbs(cloud, epsilon)
    smoothed = Gamma.T @ (rho / Gamma.sum(1))
    # beta w / (1 + kappa) = w / epsilon stays when kappa grows with h fixed, so beta is fixed and h falls instead.
    hyper = Hyper(beta=1.0, h=epsilon * 1e-9, epsilon=epsilon, noise_scale=0.0, tolerance="log", delta=1e-12)
    start = PointCloud.from_arrays(theta, rho)
    after, _ = recursion.step(
        Energy(V=still, p=theta.shape[1]), start, hyper, torch.zeros_like(theta), torch.ones(len(theta))
    )
    torch.testing.assert_close(after.log_rho.exp(), smoothed, rtol=1e-6, atol=0)


@few
@given(clouds, st.floats(0.05, 5))
def test_the_fixed_point_of_the_smoothing_is_the_kernel_density_estimate_and_it_contracts(
    cloud: tuple[int, int, int], epsilon: float
) -> None:
    theta, rho, Gamma = draw_gibbs(cloud, epsilon)
    estimate = Gamma.sum(1)
    torch.testing.assert_close(Gamma.T @ (estimate / Gamma.sum(1)), estimate)
    torch.testing.assert_close(estimate.log(), kernel_density(theta, epsilon))
    # The symmetric form of the Markov matrix has the eigenvalues of the smoothing.
    root = estimate.sqrt()
    second = torch.linalg.eigvalsh(Gamma / root[:, None] / root)[-2]
    share = rho.sum() / estimate.sum()
    before = ((rho - share * estimate) / root).norm()
    after = ((Gamma.T @ (rho / estimate) - share * estimate) / root).norm()
    assert after <= (second.abs() + 1e-9) * before + 1e-12


@pytest.mark.parametrize("kappa", [0.1, 1.0, 10.0, 100.0])
def test_the_exact_limit_of_normal_laws_tends_to_the_stated_exponent(kappa: float) -> None:
    h = min(0.002, 0.002 / kappa)
    epsilon, steps = kappa * h, round(4 / h)
    blind = gaussian_exponents(0.25, h, epsilon, 1.0, steps, share_of_w=0.0)[-1]
    seeing = gaussian_exponents(0.25, h, epsilon, 1.0, steps)[-1]
    assert blind == pytest.approx(exponent(kappa, share_of_w=0.0), abs=0.01)
    assert seeing == pytest.approx(1.0, abs=0.01)
    assert seeing - blind == pytest.approx(energy_share(kappa), abs=0.015)


@pytest.mark.parametrize("kappa, scale", [(0.1, 0.5), (1.0, 0.1), (10.0, 2.0)])
def test_the_share_of_the_energy_depends_on_the_scale_of_the_noise(kappa: float, scale: float) -> None:
    h = min(0.002, 0.002 / kappa) * min(1.0, scale**2)
    arguments = (scale**2, h, kappa * h, 1.0, round(4 / h))
    blind, seeing = (gaussian_exponents(*arguments, share_of_w=c, noise_scale=scale)[-1] for c in (0.0, 1.0))
    assert (seeing - blind) / seeing == pytest.approx(energy_share(kappa, scale), rel=0.03)


def test_at_large_kappa_the_step_sees_the_energy_if_h_over_epsilon_is_large() -> None:
    theta = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    zero, ones = torch.zeros_like(theta), torch.ones(60, dtype=torch.float64)
    changes = []
    for h in (1.0, 1e-3):
        hyper = Hyper(beta=1e5, h=h, epsilon=0.5, noise_scale=0.0, tolerance="log", delta=1e-12)
        assert hyper.kappa >= 5e4
        after, _ = recursion.step(Energy(V=still, p=1), PointCloud.from_arrays(theta), hyper, zero, ones)
        blind, _ = recursion.step(
            BlindFunctional(Energy(V=still, p=1)), PointCloud.from_arrays(theta), hyper, zero, ones
        )
        changes.append(float((after.log_rho - blind.log_rho).abs().max()))
    assert changes[0] > 0.5
    assert changes[1] < 2e-3


@pytest.mark.parametrize("orientation", ["consistent", "paper"])
def test_the_slope_of_the_recursion_without_energy_is_the_stated_share(orientation: str) -> None:
    flow, epsilon, kappa = OrnsteinUhlenbeck(1, mean=0.0), 0.02, 1.0
    setting = WeightsSetting(300, epsilon / kappa, epsilon, orientation)
    results = [result for seed in range(2) for result in compare_weights(flow, setting, (1.5,), seed=seed).values()]
    measured = np.mean([result["w = 0"]["slope"] / result["proximal"]["slope"] for result in results])
    # The share is that of N infinite and epsilon to 0; with 300 particles it is .43 (consistent) and .26 (paper).
    assert measured == pytest.approx(exponent(kappa, orientation, 0.0) / exponent(kappa, orientation), abs=0.13)


def test_theorem_1_holds_for_normal_laws_and_fails_in_the_double_well() -> None:
    for kappa in (0.1, 1.0, 100.0):
        (normal,) = limit_of_weights(OrnsteinUhlenbeckOnGrid(), kappa, (0.5,))
        assert normal["tv"] < 2e-3
    well = {kappa: limit_of_weights(DoubleWell(), kappa, (0.25,))[0]["tv"] for kappa in (1.0, 10.0, 100.0)}
    assert well[1.0] > 0.08 > well[10.0] > well[100.0]


def test_the_recursion_deviates_from_the_density_in_the_double_well_as_the_limit_does() -> None:
    flow, kappa = DoubleWell(), 1.0
    (limit,) = limit_of_weights(flow, kappa, (0.25,))
    (blind,) = limit_of_weights(flow, kappa, (0.25,), share_of_w=0.0)
    (result,) = compare_weights(flow, WeightsSetting(600, 0.0025, 0.00125), (0.25,), seed=0).values()
    assert result["proximal"]["tv"] == pytest.approx(limit["tv"], abs=0.03)
    assert result["w = 0"]["tv"] == pytest.approx(blind["tv"], abs=0.03)
    assert result["kde_best"]["tv"] < limit["tv"] / 2


@few
@given(st.integers(2, 50), st.floats(0.1, 3), st.floats(-5, 5))
def test_weights_that_are_a_power_of_the_density_have_that_slope(N: int, power: float, shift: float) -> None:
    log_p = torch.linspace(-3, 0, N, dtype=torch.float64) ** 3
    figures = agreement(power * log_p + shift, log_p, torch.linspace(0, 1, N, dtype=torch.float64))
    assert figures["slope"] == pytest.approx(power)
    assert figures["corr"] == pytest.approx(1)
    assert 0 <= figures["tv"] < 1
    assert (figures["tv"] < 1e-9) == math.isclose(power, 1, rel_tol=1e-9)


def test_a_blind_functional_moves_the_particles_as_the_functional_does() -> None:
    flow = OrnsteinUhlenbeck(2)
    theta = flow.draw(30, generator(0))
    rho = torch.full((30,), 1 / 30, dtype=torch.float64)
    hyper = WeightsSetting(30, 0.01, 0.1).hyper(1.0)
    seeing = flow.functional.potentials(theta, rho, hyper)
    blind = BlindFunctional(flow.functional).potentials(theta, rho, hyper)
    assert torch.equal(blind.gradient, seeing.gradient)
    assert not blind.w.any()
