"""The shared posterior: closed forms agree with autodiff, batches are unbiased, and the mode is a mode."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.baselines import logistic_target
from proxlearn.baselines.logistic_target import MAX_LOG_ALPHA, LogisticTarget, positive_probability
from tests.baselines.targets import logistic_rows

shapes = st.tuples(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 30), st.integers(1, 6))


def target_and_cloud(seed: int, B: int, n: int, d: int) -> tuple[LogisticTarget, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return LogisticTarget(A), torch.randn(B, d + 1, generator=generator, dtype=torch.float64)


@given(shapes, st.floats(0.1, 30))
@settings(max_examples=60, deadline=None)
def test_gradient_is_what_autodiff_finds(shape: tuple[int, int, int, int], spread: float) -> None:
    target, x = target_and_cloud(*shape)
    x = (spread * x).requires_grad_()
    (expected,) = torch.autograd.grad(target.value(x).sum(), x)
    torch.testing.assert_close(target.gradient(x.detach()), expected, rtol=1e-10, atol=1e-10)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_potential_is_the_negative_log_posterior(shape: tuple[int, int, int, int]) -> None:
    """The reference sums torch's log densities: labels, theta given alpha, alpha, and the Jacobian of log alpha."""
    target, x = target_and_cloud(*shape)
    log_alpha = x[:, -1].clamp(-MAX_LOG_ALPHA, MAX_LOG_ALPHA)
    alpha, theta = log_alpha.exp(), x[:, :-1]
    logits = -target.A @ theta.T
    labels = torch.distributions.Bernoulli(logits=logits).log_prob(torch.ones_like(logits)).sum(0)
    prior = torch.distributions.Normal(0.0, alpha[:, None] ** -0.5).log_prob(theta).sum(1)
    rate = torch.distributions.Gamma(1.0, torch.tensor(100.0, dtype=torch.float64)).log_prob(alpha)
    constant = target.value(x) + labels + prior + rate + log_alpha
    torch.testing.assert_close(constant, constant[:1].expand_as(constant), rtol=0, atol=1e-9)


@given(shapes, st.floats(1, 30), st.sampled_from([1e-5, 1e-2, 0.3]))
@settings(max_examples=60, deadline=None)
def test_bounded_gradient_is_that_of_likelihoods_bounded_from_below(
    shape: tuple[int, int, int, int], spread: float, least: float
) -> None:
    target, x = target_and_cloud(*shape)
    bounded = replace(target, least=least)
    theta = (spread * x[:, :-1]).requires_grad_()
    likelihoods = torch.sigmoid(-theta @ target.A.T).clamp(min=least)
    (row_gradient,) = torch.autograd.grad(-likelihoods.log().sum(), theta)
    wide = torch.cat((theta.detach(), x[:, -1:]), dim=1)
    prior_gradient = LogisticTarget(torch.zeros_like(target.A)).gradient(wide)
    expected = prior_gradient + torch.nn.functional.pad(row_gradient, (0, 1))
    torch.testing.assert_close(bounded.gradient(wide), expected, rtol=1e-9, atol=1e-9)
    # V is the posterior's all the same.
    torch.testing.assert_close(bounded.value(wide), target.value(wide), rtol=0, atol=0)


def test_no_number_is_not_taken_for_an_unlikely_row() -> None:
    target, x = target_and_cloud(0, 5, 7, 3)
    x[2, 1] = torch.nan
    for potential in (target, replace(target, least=1e-5)):
        assert potential.gradient(x).isnan().any(1).tolist() == [False, False, True, False, False]


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_batches_of_data_are_unbiased(shape: tuple[int, int, int, int]) -> None:
    target, x = target_and_cloud(*shape)
    single = torch.stack([target.gradient(x, torch.tensor([row])) for row in range(len(target.A))])
    torch.testing.assert_close(single.mean(0), target.gradient(x), rtol=1e-9, atol=1e-9)


def test_drawn_rows_are_rows_and_all_rows_need_no_draw(generator: torch.Generator) -> None:
    target, _ = target_and_cloud(0, 1, 20, 3)
    rows = target.data_batch(7, generator)
    assert rows is not None
    assert rows.shape == (7,)
    assert 0 <= int(rows.min()) <= int(rows.max()) < 20
    assert target.data_batch(None, generator) is None
    assert target.data_batch(20, generator) is None


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_nothing_changes_where_log_alpha_is_clipped(side: float) -> None:
    target, x = target_and_cloud(1, 4, 10, 3)
    x[:, -1] = side * torch.tensor([MAX_LOG_ALPHA + 1, MAX_LOG_ALPHA + 2, MAX_LOG_ALPHA + 3, MAX_LOG_ALPHA + 50])
    moved = x.clone()
    moved[:, -1] *= 2
    torch.testing.assert_close(target.value(x), target.value(moved))
    assert not target.gradient(x)[:, -1].any()


@given(st.integers(0, 10**6), st.integers(5, 60), st.integers(1, 6), st.floats(0.1, 10))
@settings(max_examples=40, deadline=None)
def test_laplace_is_at_the_mode_with_the_inverse_hessian(seed: int, n: int, d: int, scale: float) -> None:
    target, _ = target_and_cloud(seed, 1, n, d)
    target = LogisticTarget(scale * target.A)
    mode, covariance = target.laplace()
    assert float(target.gradient(mode[None]).abs().max()) < 1e-6
    hessian = torch.autograd.functional.hessian(lambda x: target.value(x[None])[0], mode)
    torch.testing.assert_close(torch.linalg.inv(covariance), hessian, rtol=1e-6, atol=1e-6)


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    target, x = target_and_cloud(3, 50, 40, 4)
    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unchunked = target.value(x), target.gradient(x), positive_probability(x[:, :-1], X)
    monkeypatch.setattr(logistic_target, "CHUNK_SIZE", 300)
    for actual, expected in zip(
        (target.value(x), target.gradient(x), positive_probability(x[:, :-1], X)), unchunked, strict=True
    ):
        torch.testing.assert_close(actual, expected)


def test_prediction_is_the_mean_over_samples() -> None:
    X = torch.from_numpy(logistic_rows(5)[0])
    theta = torch.tensor([[1.0, 2.0], [-3.0, 0.5]], dtype=torch.float64)
    expected = (1 / (1 + torch.exp(-X @ theta[0])) + 1 / (1 + torch.exp(-X @ theta[1]))) / 2
    torch.testing.assert_close(positive_probability(theta, X), expected)
