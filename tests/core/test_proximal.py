"""The proximal update is the minimiser of the convex problem stated in proximal.py."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from proxlearn.core import options
from proxlearn.core.kernels.choice import make_kernel
from proxlearn.core.kernels.kernel import squared_distances
from proxlearn.core.proximal import ProximalSolution, objective, solve

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
