"""The proximal update is the minimiser of the convex problem stated in proximal.py.

Weight updates are minimisers that conserve the mass; resampling is unbiased and changes as little as possible.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.core import options, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.choice import make_kernel
from proxlearn.core.kernels.kernel import squared_distances
from proxlearn.core.metrics import effective_sample_size
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.proximal import ProximalSolution, objective, solve
from proxlearn.core.samples import Samples
from proxlearn.core.weight_updates import UPDATES, ess_below, resample_systematic
from tests.conftest import randomness

N, BETA, H, EPSILON = 6, 0.7, 0.2, 0.9
KAPPA = BETA * EPSILON / H


@dataclass(frozen=True)
class Case:
    """Two clouds of six particles, weights and a potential."""

    rows: Tensor
    columns: Tensor
    log_rho: Tensor
    w: Tensor

    @property
    def C(self) -> Tensor:
        return squared_distances(self.rows, self.columns)

    def solve(self, kernel: options.Kernel, log_z0: Tensor) -> ProximalSolution:
        gibbs = make_kernel(kernel, self.rows, self.columns, EPSILON)
        return solve(gibbs, self.log_rho, -BETA * self.w - 1, KAPPA, log_z0, 1e-14, 1000, "log")

    def coupling(self, solution: ProximalSolution) -> Tensor:
        return torch.exp(solution.log_q[:, None] - self.C / (2 * EPSILON) + solution.log_z)

    def objective(self, M: Tensor) -> Tensor:
        rho = M.sum(0)
        transport = (self.C * M).sum() / 2 + EPSILON * torch.special.xlogy(M, M).sum()
        return transport + H * (self.w * rho + torch.special.xlogy(rho, rho) / BETA).sum()


def make_case(orientation: str, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    old = torch.randn(N, 2, generator=generator, dtype=torch.float64)
    new = old + 0.3 * torch.randn(N, 2, generator=generator, dtype=torch.float64)
    log_rho = torch.randn(N, generator=generator, dtype=torch.float64) - 2
    w = torch.randn(N, generator=generator, dtype=torch.float64)
    rows, columns = (new, old) if orientation == "paper" else (old, new)
    return Case(rows, columns, log_rho, w)


@pytest.fixture(params=["paper", "consistent"])
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param, seed=1)


zeros = torch.zeros(N, dtype=torch.float64)
kernels = pytest.mark.parametrize("kernel", ["dense", "log"])


@kernels
def test_both_fixed_point_equations_hold(case: Case, kernel: options.Kernel) -> None:
    solution = case.solve(kernel, zeros)
    Gamma = torch.exp(-case.C / (2 * EPSILON))
    z, q = solution.log_z.exp(), solution.log_q.exp()
    xi = torch.exp(-BETA * case.w - 1)
    assert solution.converged
    torch.testing.assert_close(z * (Gamma.T @ q), xi * z ** (-KAPPA), rtol=1e-8, atol=0)
    torch.testing.assert_close(q * (Gamma @ z), case.log_rho.exp(), rtol=1e-8, atol=0)


@kernels
def test_optimality_condition_is_constant_along_each_row(case: Case, kernel: options.Kernel) -> None:
    M = case.coupling(case.solve(kernel, zeros))
    condition = case.C / 2 + EPSILON * M.log() + H * (case.w + M.sum(0).log() / BETA)
    assert float((condition - condition[:, :1]).abs().max()) < 1e-8


@kernels
def test_new_weights_are_the_couplings_column_sums_and_mass_is_kept(case: Case, kernel: options.Kernel) -> None:
    solution = case.solve(kernel, zeros)
    M = case.coupling(solution)
    torch.testing.assert_close(M.sum(0), solution.log_rho.exp(), rtol=1e-10, atol=0)
    torch.testing.assert_close(solution.log_rho.exp().sum(), case.log_rho.exp().sum(), rtol=1e-13, atol=0)


def test_no_feasible_perturbation_lowers_the_objective(case: Case) -> None:
    M = case.coupling(case.solve("log", zeros))
    best = case.objective(M)
    generator = torch.Generator().manual_seed(3)
    for size in (1e-1, 1e-2, 1e-3, 1e-4):
        for _ in range(200):
            # Rows of the direction add up to 0, and no entry loses more than it has.
            direction = M * torch.randn(N, N, generator=generator, dtype=torch.float64).clamp(-1, 1)
            direction -= M * direction.sum(1, keepdim=True) / M.sum(1, keepdim=True)
            moved = M + size * direction
            assert bool((moved >= 0).all())
            assert case.objective(moved) >= best - 1e-14


@kernels
def test_the_minimiser_does_not_depend_on_z0(case: Case, kernel: options.Kernel) -> None:
    generator = torch.Generator().manual_seed(4)
    starts = [torch.rand(N, generator=generator, dtype=torch.float64).log() for _ in range(20)]
    actual = torch.stack([case.solve(kernel, start).log_rho.exp() for start in starts])
    torch.testing.assert_close(actual, actual[:1].expand_as(actual), rtol=1e-8, atol=0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("orientation", ["paper", "consistent"])
def test_a_round_contracts_by_at_least_one_over_one_plus_kappa(orientation: str, seed: int) -> None:
    changes = make_case(orientation, seed).solve("log", zeros).changes
    # Below 1e-8 rounding shows in the ratio.
    ratios = [float(b / a) for a, b in itertools.pairwise(changes) if a > 1e-8]
    assert len(ratios) >= 8
    assert max(ratios) <= (1 + 1e-6) / (1 + KAPPA)


@pytest.mark.parametrize("L", [1, 2, 3, 5])
def test_the_reported_error_bounds_the_true_one(case: Case, L: int) -> None:
    exact = case.solve("log", zeros)
    kernel = make_kernel("log", case.rows, case.columns, EPSILON)
    early = solve(kernel, case.log_rho, -BETA * case.w - 1, KAPPA, zeros, 1e-14, L, "log")
    assert not early.converged
    assert float((early.log_rho - exact.log_rho).abs().max()) <= float(early.error)


def test_converged_is_not_claimed_where_the_papers_norms_hold_vacuously(case: Case) -> None:
    """Tiny weights make every absolute change small, although z is wrong by a factor of e^90."""
    kernel = make_kernel("log", case.rows, case.columns, EPSILON)
    shifted = case.log_rho - 300
    actual = solve(kernel, shifted, -BETA * case.w - 1000, KAPPA, zeros - 100, 1e-3, 1, "paper")
    assert actual.stopped
    assert not actual.converged


def test_the_closed_form_of_the_objective_is_the_objective(case: Case) -> None:
    solution = case.solve("log", zeros)
    before, after = objective(solution, case.log_rho, case.C.diagonal(), case.w, BETA, H, EPSILON)
    torch.testing.assert_close(before, case.objective(torch.diag(case.log_rho.exp())), rtol=1e-12, atol=0)
    torch.testing.assert_close(after, case.objective(case.coupling(solution)), rtol=1e-12, atol=0)
    assert after < before


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
