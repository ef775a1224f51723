"""What the weights converge to: the smoothing step, its fixed point, and the share of the energy."""

from __future__ import annotations

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
from proxlearn.verify.double_well import DoubleWell
from proxlearn.verify.known_flow import BlindFunctional, generator
from proxlearn.verify.ornstein_uhlenbeck import OrnsteinUhlenbeck, OrnsteinUhlenbeckOnGrid
from proxlearn.verify.population_limit import exponent, gaussian_exponents, limit_of_weights


def still(theta: torch.Tensor) -> torch.Tensor:
    """An energy whose gradient is 0: the particles stay, and w differs between halves of the line."""
    return torch.sign(theta[0])


clouds = st.tuples(st.integers(2, 30), st.integers(1, 3), st.integers(0, 10**6))
few = settings(max_examples=30, deadline=None)


@few
@given(clouds, st.floats(0.05, 5))
def test_at_large_kappa_the_step_is_a_smoothing_that_does_not_see_the_energy(
    cloud: tuple[int, int, int], epsilon: float
) -> None:
    N, p, seed = cloud
    rng = generator(seed)
    theta, rho = torch.randn(N, p, generator=rng, dtype=torch.float64), torch.rand(N, generator=rng).double() + 0.1
    Gamma = torch.exp(-squared_distances(theta, theta) / (2 * epsilon))
    smoothed = Gamma.T @ (rho / Gamma.sum(1))
    # beta w / (1 + kappa) = w / epsilon stays when kappa grows with h fixed, so beta is fixed and h falls instead.
    hyper = Hyper(beta=1.0, h=epsilon * 1e-9, epsilon=epsilon, noise_scale=0.0, tolerance="log", delta=1e-12)
    start = PointCloud.from_arrays(theta, rho)
    after, _ = recursion.step(Energy(V=still, p=p), start, hyper, torch.zeros_like(theta), torch.ones(N))
    torch.testing.assert_close(after.log_rho.exp(), smoothed, rtol=1e-6, atol=0)


@few
@given(clouds, st.floats(0.05, 5))
def test_the_fixed_point_of_the_smoothing_is_the_kernel_density_estimate_and_it_contracts(
    cloud: tuple[int, int, int], epsilon: float
) -> None:
    N, p, seed = cloud
    rng = generator(seed)
    theta, rho = torch.randn(N, p, generator=rng, dtype=torch.float64), torch.rand(N, generator=rng).double() + 0.1
    Gamma = torch.exp(-squared_distances(theta, theta) / (2 * epsilon))
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
