"""The softmax neuron: its closed form agrees with autodiff, and a recursion with it agrees with the paper's.

The tiled response of every neuron equals the whole one up to rounding, whichever tiles are kept.
"""

from __future__ import annotations

from collections.abc import Callable

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
from proxlearn.core.neurons import tiled_response
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.registry import NEURONS
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.neurons.tiled_response import TiledResponse, respond
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import estimates, scores
from tests.conftest import potentials, randomness

torch.set_num_threads(1)

shapes = st.tuples(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 12), st.integers(1, 5), st.integers(2, 6))


def problem_and_cloud(
    seed: int, N: int, n: int, n_x: int, C: int, spread: float = 1.0, intercept: bool = False
) -> tuple[Risk, PointCloud]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    labels = torch.randint(0, C, (n,), generator=generator)
    samples = Samples(normal(n, n_x), torch.ones(n, dtype=torch.float64), labels)
    rho = normal(N).exp() / N
    neuron = Softmax(C, intercept)
    return Risk.from_samples(neuron, samples), PointCloud(spread * normal(N, num_parameters(neuron, n_x)), rho.log())


@given(shapes)
@settings(max_examples=60, deadline=None)
def test_phi_is_the_probability_of_the_label(shape: tuple[int, int, int, int, int]) -> None:
    problem, cloud = problem_and_cloud(*shape)
    P = problem.neuron.phi(cloud.theta, problem.samples)
    X, labels, C = problem.samples.X, problem.samples.labels, shape[4]
    assert labels is not None
    for i, theta in enumerate(cloud.theta):
        logits = X @ theta.view(C, -1).T
        expected = torch.softmax(logits, dim=1)[torch.arange(len(X)), labels]
        torch.testing.assert_close(P[i], expected, rtol=1e-12, atol=1e-14)


@given(shapes)
@settings(max_examples=40, deadline=None)
def test_outputs_are_probabilities(shape: tuple[int, int, int, int, int]) -> None:
    problem, cloud = problem_and_cloud(*shape, spread=30.0)
    p = problem.neuron.outputs(cloud.theta, problem.samples.X)
    assert bool((p >= 0).all())
    torch.testing.assert_close(p.sum(dim=1), torch.ones_like(p[:, 0]))


@given(shapes)
@settings(max_examples=60, deadline=None)
def test_response_is_phi_behind_products(shape: tuple[int, int, int, int, int]) -> None:
    problem, cloud = problem_and_cloud(*shape)
    P = problem.neuron.phi(cloud.theta, problem.samples)
    response = problem.neuron.respond(cloud.theta, problem.samples)
    torch.testing.assert_close(response.over_particles(cloud.rho[:, None])[:, 0], P.T @ cloud.rho)
    torch.testing.assert_close(response.over_samples(problem.samples.y[:, None])[:, 0], P @ problem.samples.y)


@given(shapes, st.booleans(), st.sampled_from(["paper", "first_variation"]))
@settings(max_examples=100, deadline=None)
def test_closed_form_drift_equals_autodiff(shape: tuple[int, int, int, int, int], intercept: bool, drift: str) -> None:
    problem, cloud = problem_and_cloud(*shape, intercept=intercept)
    n, rho = len(problem.samples), cloud.rho
    theta = cloud.theta.clone().requires_grad_()
    P = problem.neuron.phi(theta, problem.samples)
    # The first variation is v + 2 U rho with the risk's other argument frozen.
    factor, other = (1, P) if drift == "paper" else (2, P.detach())
    total = (-2 / n * P @ problem.samples.y + factor / n * P @ (other.T @ rho)).sum()
    (expected,) = torch.autograd.grad(total, theta)
    actual = potentials(problem, cloud.theta, rho, drift).gradient  # type: ignore[arg-type]
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", ["log", "dense"])
@pytest.mark.parametrize("seed", range(6))
def test_step_equals_the_papers_literal_recursion(seed: int, kernel: str) -> None:
    problem, cloud = problem_and_cloud(seed, N=30, n=40, n_x=4, C=10, spread=0.3)
    hyper = Hyper(beta=0.5, h=1e-3, epsilon=10.0, delta=1e-3, L=300, noise_scale=0.01, kernel=kernel)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(cloud.theta.shape, generator=generator, dtype=torch.float64)
    z0 = 1 - torch.rand(len(cloud.theta), generator=generator, dtype=torch.float64)
    actual, info = step.step(problem, cloud, hyper, noise, z0)
    expected, literal_info = literal.step(problem, cloud, hyper, noise, z0)
    assert info is not None
    assert info.solution.rounds == literal_info.solution.rounds
    torch.testing.assert_close(actual.theta, expected.theta, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(actual.rho, expected.rho, rtol=1e-9, atol=0)


@given(shapes, st.floats(-50, 50))
@settings(max_examples=40, deadline=None)
def test_a_common_shift_of_all_classes_changes_nothing(shape: tuple[int, int, int, int, int], shift: float) -> None:
    problem, cloud = problem_and_cloud(*shape)
    shifted = cloud.theta + shift
    torch.testing.assert_close(
        problem.neuron.phi(shifted, problem.samples),
        problem.neuron.phi(cloud.theta, problem.samples),
        atol=1e-10,
        rtol=0,
    )


def test_no_overflow_for_huge_logits() -> None:
    problem, cloud = problem_and_cloud(0, 5, 7, 3, 4, spread=1e6)
    now = potentials(problem, cloud.theta, cloud.rho, "paper")
    assert all(bool(torch.isfinite(t).all()) for t in (now.w, now.gradient))


@given(shapes)
@settings(max_examples=40, deadline=None)
def test_an_intercept_is_the_weight_of_a_constant_feature(shape: tuple[int, int, int, int, int]) -> None:
    problem, cloud = problem_and_cloud(*shape, intercept=True)
    C, X = shape[4], problem.samples.X
    b, w = cloud.theta[:, :C, None], cloud.theta[:, C:].view(len(cloud.theta), C, -1)
    with_ones = torch.cat((X, torch.ones(len(X), 1, dtype=X.dtype)), dim=1)
    expected = Softmax(C).outputs(torch.cat((w, b), dim=2).flatten(1), with_ones)
    torch.testing.assert_close(problem.neuron.outputs(cloud.theta, X), expected, rtol=1e-10, atol=1e-12)


output_shapes = st.tuples(
    st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 12), st.integers(1, 5), st.integers(1, 6)
)
drifts = st.sampled_from(["paper", "first_variation"])


def problem_and_cloud_tanh_outputs(seed: int, N: int, n: int, n_x: int, C: int) -> tuple[Risk, PointCloud]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    neuron = Perceptron(num_outputs=C)
    cloud = PointCloud(normal(N, num_parameters(neuron, n_x)), normal(N) - 2)
    return Risk.from_samples(neuron, Samples(normal(n, n_x), normal(C, n))), cloud


@given(output_shapes, drifts)
@settings(max_examples=80, deadline=None)
def test_closed_form_drift_of_several_outputs_equals_autodiff(
    shape: tuple[int, int, int, int, int], drift: options.Drift
) -> None:
    problem, cloud = problem_and_cloud_tanh_outputs(*shape)
    n, y, rho = len(problem.samples), problem.samples.y.reshape(-1), cloud.rho
    theta = cloud.theta.clone().requires_grad_()
    P = problem.neuron.phi(theta, problem.samples)
    factor, other = (1, P) if drift == "paper" else (2, P.detach())
    (expected,) = torch.autograd.grad((-2 / n * P @ y + factor / n * P @ (other.T @ rho)).sum(), theta)
    actual = potentials(problem, cloud.theta, rho, drift)
    torch.testing.assert_close(actual.gradient, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(actual.w, (-2 / n * P @ y + P @ (P.T @ rho) / n).detach())


@given(output_shapes)
@settings(max_examples=30, deadline=None)
def test_the_first_variation_is_the_gradient_of_the_risk(shape: tuple[int, int, int, int, int]) -> None:
    """rho_i times the drift's gradient at particle i is the risk's own gradient with respect to theta_i."""
    problem, cloud = problem_and_cloud_tanh_outputs(*shape)
    theta = cloud.theta.clone().requires_grad_()
    f = torch.einsum("i,icm->cm", cloud.rho, problem.neuron.outputs(theta, problem.samples.X))
    (expected,) = torch.autograd.grad(problem.loss.mean(f, problem.samples.y), theta)
    actual = potentials(problem, cloud.theta, cloud.rho, "first_variation").gradient
    torch.testing.assert_close(cloud.rho[:, None] * actual, expected, rtol=1e-10, atol=1e-12)


def test_one_output_is_the_paper_s_neuron() -> None:
    problem, cloud = problem_and_cloud_tanh_outputs(0, 7, 11, 3, 1)
    single = Risk.from_samples(Perceptron(), Samples(problem.samples.X, problem.samples.y[0]))
    for drift in ("paper", "first_variation"):
        ours, theirs = (potentials(case, cloud.theta, cloud.rho, drift) for case in (problem, single))
        torch.testing.assert_close(ours.gradient, theirs.gradient)
        torch.testing.assert_close(ours.w, theirs.w)
    assert isinstance(NEURONS["tanh_outputs"](2), Perceptron)
    assert NEURONS["tanh_outputs"](3) == Perceptron(num_outputs=3)


@given(output_shapes)
@settings(max_examples=30, deadline=None)
def test_a_recursion_is_the_paper_s_own(shape: tuple[int, int, int, int, int]) -> None:
    problem, cloud = problem_and_cloud_tanh_outputs(*shape)
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
    problem, cloud = problem_and_cloud_tanh_outputs(5, 23, 40, 5, 4)
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


FEATURES, CLASSES = 2, 3
NEURONS_TILED_RESPONSE: dict[str, Callable[[], Neuron]] = {
    "one output": Perceptron,
    "several outputs": lambda: Perceptron("gelu", num_outputs=CLASSES),
    "softmax": lambda: Softmax(CLASSES),
    "softmax with intercept": lambda: Softmax(CLASSES, intercept=True),
    "function": lambda: FunctionNeuron(lambda theta, x: torch.cos(theta["w"] @ x), {"w": FEATURES}),
}


def make_problem(name: str, seed: int, N: int, n: int, dtype: torch.dtype) -> tuple[Neuron, torch.Tensor, Samples]:
    neuron, generator = NEURONS_TILED_RESPONSE[name](), torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (n,), generator=generator)
    X = torch.randn(n, FEATURES, generator=generator, dtype=torch.float64)
    theta = torch.randn(N, num_parameters(neuron, FEATURES), generator=generator, dtype=torch.float64)
    y = neuron.targets(labels if neuron.num_outputs > 1 or "softmax" in name else labels.clamp_max(1))
    return neuron, theta.to(dtype), Samples(X, y, labels).to("cpu", dtype)


@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(NEURONS_TILED_RESPONSE)),
    N=st.integers(1, 25),
    n=st.integers(1, 9),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    tile=st.integers(1, 60),
    kept_bytes=st.sampled_from([0, 500, 10**6]),
)
@settings(max_examples=60, deadline=None)
def test_every_operation_is_that_of_the_whole_response(
    seed: int, name: str, N: int, n: int, dtype: torch.dtype, tile: int, kept_bytes: int
) -> None:
    neuron, theta, samples = make_problem(name, seed, N, n, dtype)
    generator = torch.Generator().manual_seed(seed + 1)
    length = samples.y.numel()
    weights, vectors, c, d = (
        torch.randn(shape, generator=generator, dtype=dtype) for shape in ((N, 2), (length, 2), (length,), (length,))
    )
    rho = torch.rand(N, generator=generator, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled_response, "TILE_ENTRIES", tile)
        whole, tiled = neuron.respond(theta, samples), TiledResponse(neuron, theta, samples, kept_bytes)
        tolerance = 1e-13 if dtype == torch.float64 else 1e-4
        for actual, expected in (
            (tiled.over_particles(weights), whole.over_particles(weights)),
            (tiled.over_samples(vectors), whole.over_samples(vectors)),
            (tiled.pull_back(c, rho, d), whole.pull_back(c, rho, d)),
        ):
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
        again = neuron.respond(theta, samples)
        torch.testing.assert_close(tiled.pull_back(c), again.pull_back(c), rtol=tolerance, atol=tolerance)
        fresh = TiledResponse(neuron, theta, samples, 0)
        assert torch.equal(fresh.over_particles(weights), tiled.over_particles(weights))


@pytest.mark.parametrize("name", NEURONS_TILED_RESPONSE)
def test_closed_forms_are_kept_within_the_limit_and_a_tape_is_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    neuron, theta, samples = make_problem(name, 0, 40, 8, torch.float64)
    monkeypatch.setattr(tiled_response, "TILE_ENTRIES", 10 * 8 * neuron.width)
    evaluated = []
    plain = type(neuron).respond
    monkeypatch.setattr(type(neuron), "respond", lambda *args: evaluated.append(1) or plain(*args))
    kept = plain(neuron, theta[:10], samples).stored_bytes()
    tiled = TiledResponse(neuron, theta, samples, 3 * (kept or 1))
    for _ in range(2):
        tiled.over_particles(theta.new_ones(40, 1))
    assert len(evaluated) == (8 if kept is None else 5)
    assert (kept is None) == (name == "function")


def test_small_clouds_have_the_neurons_own_response_and_little_memory_gives_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    neuron, theta, samples = make_problem("one output", 0, 4000, 2000, torch.float64)
    assert not isinstance(respond(neuron, theta, samples), TiledResponse)
    monkeypatch.setenv("PROXLEARN_MEMORY", "200MiB")
    assert isinstance(respond(neuron, theta, samples), TiledResponse)
    assert not isinstance(respond(neuron, theta[:50], samples), TiledResponse)


def test_the_potentials_of_a_risk_do_not_depend_on_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    neuron, theta, samples = make_problem("several outputs", 3, 30, 8, torch.float64)
    risk, rho = Risk.from_samples(neuron, samples), torch.rand(30, dtype=torch.float64)
    hyper = Hyper(beta=1.0, h=1.0, epsilon=1.0)
    expected = risk.potentials(theta, rho, hyper)
    monkeypatch.setattr(tiled_response, "WHOLE_ENTRIES", 0)
    monkeypatch.setattr(tiled_response, "TILE_ENTRIES", 100)
    actual = risk.potentials(theta, rho, hyper)
    torch.testing.assert_close(actual.w, expected.w)
    torch.testing.assert_close(actual.gradient, expected.gradient)
