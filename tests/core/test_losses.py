"""Losses: closed forms equal automatic differentiation, and extreme outputs stay finite."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.core.losses import LOSSES, Huber, Loss, Quadratic, cross_entropy, huber, logistic, quadratic
from proxlearn.errors import InputError

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
    with pytest.raises(InputError, match="must be positive"):
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
