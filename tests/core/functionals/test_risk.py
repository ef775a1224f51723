"""The drift in closed form equals the gradient by automatic differentiation.

Losses: closed forms equal automatic differentiation, and extreme outputs stay finite.

A user's functional that is not finite or cannot be evaluated at the initial cloud is rejected at the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import proxlearn as pl
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.losses import LOSSES, Huber, Loss, Quadratic, cross_entropy, huber, logistic, quadratic
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.errors import InputError
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


sizes = st.integers(1, 12)
seeds = st.integers(0, 10**6)
scales = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)


def outputs_and_targets(loss: Loss, n: int, seed: int, scale: float, outputs: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if loss.name == "cross_entropy":
        f = scale * torch.randn(outputs, n, generator=generator, dtype=torch.float64)
        labels = torch.randint(outputs, (n,), generator=generator)
        return f, torch.nn.functional.one_hot(labels, outputs).T.double()
    f = scale * torch.randn(n, generator=generator, dtype=torch.float64)
    if loss.name == "logistic":
        return f, 2.0 * torch.randint(2, (n,), generator=generator).double() - 1
    return f, torch.randn(n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("loss", [quadratic, logistic, cross_entropy, huber, Huber(0.3)], ids=repr)
@settings(deadline=None)
@given(sizes, seeds, scales)
def test_the_closed_derivative_is_what_autodiff_finds(loss: Loss, n: int, seed: int, scale: float) -> None:
    f, y = outputs_and_targets(loss, n, seed, scale)
    torch.testing.assert_close(loss.derivative(f, y), Loss.derivative(loss, f, y), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(loss.cotangent(f, y), loss.derivative(f, y) / n, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ["quadratic", "logistic", "cross_entropy", "huber"])
@settings(deadline=None)
@given(sizes, seeds, st.floats(0, 1))
def test_a_loss_is_convex_in_the_output(name: str, n: int, seed: int, share: float) -> None:
    loss = LOSSES[name]()
    f, y = outputs_and_targets(loss, n, seed, 3.0)
    g, _ = outputs_and_targets(loss, n, seed + 1, 3.0)
    between = loss.value(share * f + (1 - share) * g, y)
    assert (between <= share * loss.value(f, y) + (1 - share) * loss.value(g, y) + 1e-9).all()


@pytest.mark.parametrize("loss", [logistic, cross_entropy], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e2, 1e30])
def test_outputs_up_to_1e30_give_finite_values_derivatives_and_probabilities(
    loss: Loss, dtype: torch.dtype, size: float
) -> None:
    f, y = (part.to(dtype) for part in outputs_and_targets(loss, 6, 0, size))
    assert torch.isfinite(loss.value(f, y)).all()
    assert torch.isfinite(loss.derivative(f, y)).all()
    probabilities = loss.probabilities(f if f.ndim == 2 else f[None])
    assert probabilities is not None
    assert torch.isfinite(probabilities).all()
    torch.testing.assert_close(probabilities.sum(0), torch.ones(6, dtype=torch.float64))


@settings(deadline=None)
@given(sizes, seeds)
def test_the_mean_log_loss_of_the_probabilities_is_the_mean_loss(n: int, seed: int) -> None:
    for loss in (logistic, cross_entropy):
        f, y = outputs_and_targets(loss, n, seed, 2.0)
        probabilities = loss.probabilities(f if f.ndim == 2 else f[None])
        assert probabilities is not None
        labels = y.argmax(0) if y.ndim == 2 else (y > 0).long()
        log_loss = -probabilities.gather(0, labels[None])[0].log()
        torch.testing.assert_close(loss.value(f, y), log_loss, rtol=1e-10, atol=1e-12)


def test_huber_is_quadratic_near_zero_and_linear_far_away() -> None:
    f, y = torch.tensor([0.5, -0.5, 3.0, 1e200], dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    torch.testing.assert_close(huber.value(f, y), torch.tensor([0.125, 0.125, 2.5, 1e200], dtype=torch.float64))
    with pytest.raises(InputError, match="must be a finite number > 0"):
        Huber(0.0)


def test_the_quadratic_loss_of_several_outputs_is_their_sum() -> None:
    f, y = torch.ones(3, 2), torch.zeros(3, 2)
    assert Quadratic().value(f, y).tolist() == [3.0, 3.0]
    assert quadratic.probabilities(f) is None
    assert math.isclose(float(quadratic.cotangent(f, y)[0, 0]), 1.0)


@pytest.mark.parametrize("loss", [quadratic, logistic, cross_entropy, huber, Huber(0.3)], ids=repr)
@given(st.integers(0, 10**6), st.floats(0.01, 10))
@settings(max_examples=40, deadline=None)
def test_the_derivative_is_lipschitz_with_the_smoothness(loss: Loss, seed: int, distance: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    C = 3
    y = torch.nn.functional.one_hot(torch.randint(C, (5,), generator=generator), C).T.double()
    y = 2 * y[0] - 1 if loss.name == "logistic" else y
    f = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    g = f + distance * torch.randn(y.shape, generator=generator, dtype=torch.float64)
    change = torch.linalg.vector_norm(loss.derivative(f, y) - loss.derivative(g, y))
    assert float(change) <= loss.smoothness * float(torch.linalg.vector_norm(f - g)) * (1 + 1e-9)


HYPER = pl.Hyper(beta=100.0, h=0.02, epsilon=0.1)
STARTS: dict[str, Callable[[pl.Functional, pl.PointCloud], object]] = {
    "iterate": lambda functional, cloud: pl.iterate(functional, cloud, HYPER, steps=1),
    "step": lambda functional, cloud: pl.step(
        functional, cloud, HYPER, torch.zeros_like(cloud.theta), torch.ones_like(cloud.rho)
    ),
}


def functional_of(value: Callable[[Tensor, Tensor], Any]) -> pl.Functional:
    members = {"blocks": {"theta": 2}, "value": lambda self, theta, rho: value(theta, rho)}
    functional: pl.Functional = type("Mine", (pl.Functional,), members)()
    return functional


def risk_of(phi: Callable[[Mapping[str, Tensor], Tensor], Tensor]) -> pl.Risk:
    X = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)[:, None]
    return pl.Risk(X, X[:, 0], pl.neurons.FunctionNeuron(phi, {"w": 2}, name="mine"))


class Root(pl.losses.Loss):
    name = "root"

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.sqrt(f - y)


NOT_FINITE: dict[str, tuple[Callable[[], pl.Functional], str]] = {
    "V": (lambda: pl.Energy(V=lambda t: t.log().sum(), p=2), "V is not finite at particle 2 of the initial cloud"),
    "W": (lambda: pl.Energy(W=lambda t, s: (t + s).log().sum(), p=2), "W is not finite at particle 0 of the initial"),
    "gradient of V": (
        lambda: pl.Energy(V=lambda t: (t - 1).abs().sqrt().sum(), p=2),
        "gradient of the functional is not finite at particle 0 of the initial cloud",
    ),
    "phi": (lambda: risk_of(lambda t, x: t["w"].log().sum() * x[0]), "neuron `mine` is not finite at particle 2"),
    "loss": (lambda: pl.Risk(np.ones((3, 1)), [9.0] * 3, pl.neurons.FunctionNeuron(
        lambda t, x: t["w"].sum(), {"w": 2}), Root()), "value of Risk is not finite at the initial cloud"),
    "functional": (lambda: functional_of(lambda t, r: r @ t.log().sum(1)), "value of Mine is not finite"),
    "vector": (lambda: functional_of(lambda t, r: r * t[:, 0]), r"`value` of Mine returned a tensor of shape \(4,\)"),
    "number": (lambda: functional_of(lambda t, r: 1.0), "`value` of Mine returned 1.0; return a scalar tensor"),
    "no rho": (lambda: functional_of(lambda t, r: t.square().sum()), "`value` of Mine does not depend on rho"),
    "no theta": (lambda: functional_of(lambda t, r: r @ r), "`value` of Mine does not depend on theta"),
    "detached": (
        lambda: functional_of(lambda t, r: (r @ t).sum().detach()),
        "`value` of Mine does not depend on theta",
    ),
    "error": (lambda: functional_of(lambda t, r: r @ t[5]), "Mine cannot be evaluated at the initial cloud"),
    "batched V": (lambda: pl.Energy(V=lambda t: t[:, 0] ** 2, p=2), r"V\(theta\) cannot be evaluated for one particle"),
    "float V": (lambda: pl.Energy(V=lambda t: 1.0, p=2), r"V\(theta\) cannot be evaluated .* return a scalar tensor"),
    "batched W": (lambda: pl.Energy(W=lambda t, s: (t @ s)[:, 0], p=2), r"W\(theta, other\) cannot be evaluated"),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", NOT_FINITE)
def test_what_cannot_be_started_is_refused_at_the_call_with_its_cause(name: str, start: str) -> None:
    make, message = NOT_FINITE[name]
    cloud = pl.PointCloud.from_arrays([[1.0, 2.0], [2.0, 1.0], [-5.0, 1.0], [1.0, -5.0]])
    with pytest.raises(pl.InputError, match=message) as caught:
        STARTS[start](make(), cloud)
    assert "smaller h" not in str(caught.value)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_a_gradient_that_becomes_infinite_names_the_step(engine: str) -> None:
    # The particle moves by -h towards 0, where the slope of the square root is infinite.
    energy = pl.Energy(V=lambda t: torch.where(t > 0.25, t, (t - 0.25).abs().sqrt()).sum(), p=1)
    hyper = pl.Hyper(beta=1.0, h=0.25, epsilon=0.1, noise_scale=0.0)
    iterates, seen = pl.iterate(energy, pl.PointCloud.from_arrays([[1.0]]), hyper, engine=engine), []
    with pytest.raises(pl.RunError, match="gradient of the functional is not finite at particle 0 in step 4") as caught:
        seen.extend(cloud.step for cloud, _ in iterates)
    assert seen == [1, 2, 3]
    assert type(caught.value) is pl.RunError


def test_the_check_evaluates_a_batch_and_no_more() -> None:
    rows = []

    def phi(theta: Tensor, x: Tensor) -> Tensor:
        return theta["w"] @ x  # type: ignore[call-overload, no-any-return]

    class Counted(pl.neurons.FunctionNeuron):
        def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
            rows.append(len(X))
            return super().outputs(theta, X)

    risk = pl.Risk(np.ones((1000, 2)), np.ones(1000), Counted(phi, {"w": 2}))
    list(pl.iterate(risk, pl.init(risk, N=3), pl.Hyper(beta=1.0, h=0.1, epsilon=1.0, batch_size=10), steps=3))
    assert max(rows) == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cloud_of_another_precision_than_the_data_is_evaluated_in_its_own(dtype: torch.dtype) -> None:
    data = torch.float32 if dtype == torch.float64 else torch.float64
    x = torch.linspace(-1, 1, 8, dtype=data)
    risk = pl.Risk(x[:, None], x**2, confinement=0.1, sample_weight=x.abs())
    cloud = pl.init(risk, N=6, dtype=dtype)
    same = risk.to("cpu", dtype)
    for method in ("value", "first_variation"):
        result = getattr(risk, method)(cloud.theta, cloud.rho)
        assert result.dtype == dtype
        assert torch.equal(result, getattr(same, method)(cloud.theta, cloud.rho))
    after, _ = pl.step(risk, cloud, HYPER, torch.zeros(6, 3, dtype=data), torch.ones(6, dtype=data))
    ((once, _),) = pl.iterate(
        risk, cloud, pl.Hyper(beta=100.0, h=0.02, epsilon=0.1, noise_scale=0.0), steps=1, engine="eager"
    )
    assert after.theta.dtype == dtype
    assert torch.equal(after.theta, once.theta)
    single = pl.Energy(V=lambda t: (t.double() ** 2).sum(), p=2)
    theta = torch.ones(3, 2, dtype=dtype)
    assert single.value(theta, torch.ones(3, dtype=dtype)).dtype == dtype
