"""The drift in closed form equals the gradient by automatic differentiation."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from tests.conftest import potentials


def problem_and_cloud(seed: int, N: int, n: int, n_x: int) -> tuple[Risk, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Risk.from_samples(Perceptron(), Samples(normal(n, n_x), normal(n))), normal(N, n_x + 2), normal(N).exp() / N


def gradient_by_autodiff(problem: Risk, theta: torch.Tensor, rho: torch.Tensor, factor_of_u: int) -> torch.Tensor:
    """Return the gradient of sum(v + factor * u) with u = U rho.

    For factor 2, which gives the first variation, U's other argument is frozen.
    """
    theta = theta.clone().requires_grad_()
    n = len(problem.samples)
    P = problem.neuron.phi(theta, problem.samples)
    other = P if factor_of_u == 1 else P.detach()
    total = (-2 / n * P @ problem.samples.y + factor_of_u / n * P @ (other.T @ rho)).sum()
    (gradient,) = torch.autograd.grad(total, theta)
    return gradient


shapes = st.tuples(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 15), st.integers(1, 6))


@given(shapes)
@settings(max_examples=60, deadline=None)
def test_paper_drift_equals_autodiff_of_algorithm_2(shape: tuple[int, int, int, int]) -> None:
    problem, theta, rho = problem_and_cloud(*shape)
    actual = potentials(problem, theta, rho, "paper").gradient
    torch.testing.assert_close(actual, gradient_by_autodiff(problem, theta, rho, 1), rtol=1e-10, atol=1e-10)


@given(shapes)
@settings(max_examples=60, deadline=None)
def test_first_variation_drift_equals_autodiff_of_v_plus_two_u(shape: tuple[int, int, int, int]) -> None:
    problem, theta, rho = problem_and_cloud(*shape)
    actual = potentials(problem, theta, rho, "first_variation").gradient
    torch.testing.assert_close(actual, gradient_by_autodiff(problem, theta, rho, 2), rtol=1e-10, atol=1e-10)


@given(shapes, st.floats(1e-9, 10))
@settings(max_examples=60, deadline=None)
def test_both_drifts_agree_where_all_weights_are_equal(shape: tuple[int, int, int, int], weight: float) -> None:
    problem, theta, _ = problem_and_cloud(*shape)
    rho = torch.full((len(theta),), weight, dtype=torch.float64)
    paper, first = (potentials(problem, theta, rho, drift).gradient for drift in ("paper", "first_variation"))
    torch.testing.assert_close(paper, first, rtol=1e-10, atol=1e-10)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_potentials_are_v_and_u_rho(shape: tuple[int, int, int, int]) -> None:
    problem, theta, rho = problem_and_cloud(*shape)
    n, P = len(problem.samples), problem.neuron.phi(theta, problem.samples)
    v, u = -2 / n * P @ problem.samples.y, (P @ P.T / n) @ rho
    torch.testing.assert_close(potentials(problem, theta, rho, "paper", "paper").w, v + u)
    torch.testing.assert_close(potentials(problem, theta, rho, "paper", "first_variation").w, v + 2 * u)
