"""The tanh neuron with several outputs: closed form = autodiff, step = the printed algorithm, fused = reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.core import literal, options, step
from proxlearn.core.cloud import PointCloud, draw_normal
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.neuron import num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.registry import NEURONS
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import estimates, scores
from tests.conftest import potentials, randomness

shapes = st.tuples(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 12), st.integers(1, 5), st.integers(1, 6))
drifts = st.sampled_from(["paper", "first_variation"])


def problem_and_cloud(seed: int, N: int, n: int, n_x: int, C: int) -> tuple[Risk, PointCloud]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    neuron = Perceptron(num_outputs=C)
    cloud = PointCloud(normal(N, num_parameters(neuron, n_x)), normal(N) - 2)
    return Risk.from_samples(neuron, Samples(normal(n, n_x), normal(C, n))), cloud


@given(shapes, drifts)
@settings(max_examples=80, deadline=None)
def test_closed_form_drift_equals_autodiff(shape: tuple[int, int, int, int, int], drift: options.Drift) -> None:
    problem, cloud = problem_and_cloud(*shape)
    n, y, rho = len(problem.samples), problem.samples.y.reshape(-1), cloud.rho
    theta = cloud.theta.clone().requires_grad_()
    P = problem.neuron.phi(theta, problem.samples)
    factor, other = (1, P) if drift == "paper" else (2, P.detach())
    (expected,) = torch.autograd.grad((-2 / n * P @ y + factor / n * P @ (other.T @ rho)).sum(), theta)
    actual = potentials(problem, cloud.theta, rho, drift)
    torch.testing.assert_close(actual.gradient, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(actual.w, (-2 / n * P @ y + P @ (P.T @ rho) / n).detach())


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_the_first_variation_is_the_gradient_of_the_risk(shape: tuple[int, int, int, int, int]) -> None:
    """rho_i times the drift's gradient at particle i is the risk's own gradient with respect to theta_i."""
    problem, cloud = problem_and_cloud(*shape)
    theta = cloud.theta.clone().requires_grad_()
    f = torch.einsum("i,icm->cm", cloud.rho, problem.neuron.outputs(theta, problem.samples.X))
    (expected,) = torch.autograd.grad(problem.loss.mean(f, problem.samples.y), theta)
    actual = potentials(problem, cloud.theta, cloud.rho, "first_variation").gradient
    torch.testing.assert_close(cloud.rho[:, None] * actual, expected, rtol=1e-10, atol=1e-12)


def test_one_output_is_the_paper_s_neuron() -> None:
    problem, cloud = problem_and_cloud(0, 7, 11, 3, 1)
    single = Risk.from_samples(Perceptron(), Samples(problem.samples.X, problem.samples.y[0]))
    for drift in ("paper", "first_variation"):
        ours, theirs = (potentials(case, cloud.theta, cloud.rho, drift) for case in (problem, single))
        torch.testing.assert_close(ours.gradient, theirs.gradient)
        torch.testing.assert_close(ours.w, theirs.w)
    assert isinstance(NEURONS["tanh_outputs"](2), Perceptron)
    assert NEURONS["tanh_outputs"](3) == Perceptron(num_outputs=3)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_a_recursion_is_the_paper_s_own(shape: tuple[int, int, int, int, int]) -> None:
    problem, cloud = problem_and_cloud(*shape)
    hyper = Hyper(beta=2.0, h=0.02, epsilon=5.0, delta=1e-6, L=200)
    noise, z0 = randomness(cloud, torch.Generator().manual_seed(1))
    actual, _ = step.step(problem, cloud, hyper, noise, z0)
    expected = literal.prox_learn(problem, cloud.theta, cloud.rho, hyper, noise, z0)
    torch.testing.assert_close(actual.theta, expected.theta, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(actual.rho, expected.rho, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("drift", ["paper", "first_variation"])
@pytest.mark.parametrize("potential", ["paper", "first_variation"])
def test_fused_equals_reference(dtype: torch.dtype, drift: options.Drift, potential: options.Potential) -> None:
    problem, cloud = problem_and_cloud(5, 23, 40, 5, 4)
    problem, cloud = problem.to("cpu", dtype), cloud.to("cpu", dtype)
    hyper = Hyper(beta=5.0, h=0.05, epsilon=10.0, delta=1e-3, L=50, drift=drift, prox_potential=potential)
    noise, z0 = randomness(cloud, torch.Generator().manual_seed(1))
    actual, _ = FusedStep(problem, hyper, 23, threads=2)(cloud, noise, z0)
    expected, _ = step.step(problem, cloud, hyper, noise, z0)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(actual.theta, expected.theta, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(actual.rho, expected.rho, rtol=tolerance, atol=0)


def test_scores_of_many_outputs_are_those_of_their_mean() -> None:
    """Regressed outputs are not probabilities: negative ones count as 0, and the rest are normalised."""
    generator = torch.Generator().manual_seed(2)
    neuron, labels = Perceptron(num_outputs=3), torch.randint(0, 3, (20,), generator=generator)
    X = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    cloud = draw_normal(neuron.coordinates(2), neuron.initial_deviations(2, 1.0), 15, generator)
    samples = Samples(X, neuron.targets(labels), labels)
    actual, f = scores(neuron, cloud, samples), estimates(neuron, cloud, X)["weighted"]
    one_hot = torch.eye(3, dtype=torch.float64)[labels].T
    assert actual["risk_weighted"] == pytest.approx(float((one_hot - f).square().sum(0).mean()))
    assert actual["accuracy_weighted"] == pytest.approx(float((f.argmax(0) == labels).double().mean()))
    p = (f.clamp_min(0) / f.clamp_min(0).sum(0)).clamp_min(1e-6)
    assert actual["log_loss_weighted"] == pytest.approx(float(-p.gather(0, labels[None]).log().mean()))
