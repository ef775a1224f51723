"""Properties of every sampler of block B: one interface, one posterior, and the same result for the same seed.

The shared posterior: closed forms agree with autodiff, batches are unbiased, and the mode is a mode.
"""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from proxlearn.baselines import logistic_target
from proxlearn.baselines.logistic_target import MAX_LOG_ALPHA, LogisticTarget, positive_probability
from proxlearn.baselines.registry import FitFunction, FittedMethod, find_method
from proxlearn.baselines.sampler import Ledger, append_ledger_row, draw_prior, draw_standard_normal
from proxlearn.compare.spec import PAPERS, PUBLISHED
from proxlearn.data import registry
from proxlearn.data.prepare import split_rows
from proxlearn.data.scaling import minmax
from proxlearn.errors import InputError, RunError
from tests.baselines.targets import gaussian, logistic_rows, request
from tests.conftest import config_of

SAMPLERS = ("jko_icnn", "swgf", "svgd", "langevin")
SHORT = {
    "jko_icnn": {"steps": 2, "iterations": 20, "width": 8, "pool": 512},
    "swgf": {"steps": 2, "iterations": 10, "width": 8, "pool": 512},
    "svgd": {"iterations": 20, "particles": 50},
    "langevin": {"steps": 20, "between": 5, "chains": 512},
}
"""Enough for what does not depend on the answer's quality."""


def module_of(name: str) -> Any:
    """Return the module of a method."""
    return importlib.import_module(find_method(name).module.partition(":")[0])


def fit_function(name: str) -> FitFunction:
    function: FitFunction = module_of(name).fit
    return function


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, changes in SHORT.items():
        module = module_of(name)
        monkeypatch.setattr(module, "LIGHT", replace(module.LIGHT, **changes))


@pytest.mark.parametrize("name", SAMPLERS)
def test_posterior_is_near_its_laplace_approximation(name: str) -> None:
    """With light presets, the mean is within a third of the posterior's spread, and the spread within a quarter."""
    X, y = logistic_rows()
    fitted = fit_function(name)(X, y, request())
    mode, covariance = LogisticTarget(torch.from_numpy(-y[:, None] * X)).laplace()
    spread = covariance.diagonal().sqrt()[:-1].numpy()
    assert np.abs(fitted.notes["theta_mean"] - mode[:-1].numpy()).max() < spread.min() / 3
    np.testing.assert_allclose(fitted.notes["theta_std"], spread, rtol=0.25)
    ledger = fitted.notes["ledger"]
    assert ledger[1]["decreased"]
    assert ledger[-1]["functional"] < ledger[0]["functional"] - 10


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.usefixtures("short")
def test_same_seed_same_answer(name: str) -> None:
    X, y = logistic_rows(60)

    def probabilities(seed: int) -> np.ndarray:
        return fit_function(name)(X, y, request(seed)).probability(X)

    first = probabilities(0)
    np.testing.assert_array_equal(first, probabilities(0))
    assert np.abs(first - probabilities(1)).max() > 0


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.usefixtures("short")
def test_answer_keeps_to_the_interface(name: str) -> None:
    X, y = logistic_rows(60)
    messages: list[str] = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fitted: FittedMethod = fit_function(name)(X, y, replace(request(), progress=messages.append))
        p = fitted.probability(X[:7])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert p.shape == (7,)
    assert p.dtype == np.float64
    assert bool(((p > 0) & (p < 1)).all())
    # Without an intercept, the mirrored row has the mirrored probability.
    np.testing.assert_allclose(fitted.probability(-X[:7]), 1 - p, atol=1e-6)
    assert messages
    assert json.loads(json.dumps(fitted.notes)) == fitted.notes
    assert fitted.notes["steps"] > 0
    assert all("decreased" in row for row in fitted.notes["ledger"][1:])


@pytest.mark.parametrize("name", PUBLISHED)
def test_unpublished_settings_are_refused(name: str) -> None:
    assert set(module_of(name).PAPER) == set(PAPERS)
    X, y = logistic_rows(20)
    with pytest.raises(InputError, match="no published settings for the dataset rows"):
        fit_function(name)(X, y, replace(request(), preset="paper"))


def test_prior_has_its_density(generator: torch.Generator) -> None:
    """log rho_0 agrees with torch's densities, even if log alpha is clipped, as do alpha's mean and theta's spread."""
    x, log_rho = draw_prior(20000, 4, generator)
    theta, log_alpha = x[:, :-1].double(), x[:, -1].double()
    spread = (-log_alpha.clamp(-MAX_LOG_ALPHA, MAX_LOG_ALPHA) / 2).exp()
    theta_density = torch.distributions.Normal(0.0, spread[:, None]).log_prob(theta).sum(1)
    alpha_density = torch.distributions.Gamma(1.0, torch.tensor(100.0).double()).log_prob(log_alpha.exp()) + log_alpha
    torch.testing.assert_close(log_rho.double(), theta_density + alpha_density, rtol=1e-5, atol=1e-3)
    assert abs(float(log_alpha.exp().mean()) - 0.01) < 0.0005
    clipped = log_alpha < -MAX_LOG_ALPHA
    # P(alpha < exp(-8)) = 1 - exp(-100 exp(-8)).
    assert abs(float(clipped.double().mean()) - 0.033) < 0.005
    assert abs(float(theta[clipped].std()) / math.exp(MAX_LOG_ALPHA / 2) - 1) < 0.1
    assert abs(float((theta / spread[:, None]).std()) - 1) < 0.02


def test_diverged_particles_are_an_error_with_a_remedy() -> None:
    x = torch.full((10, 2), torch.inf)
    with pytest.raises(RunError, match="diverged at step 0; standardise the features"):
        append_ledger_row(gaussian(), x, torch.zeros(10), 1.0, [])


def test_ledger_without_a_density_is_the_gaussians() -> None:
    """For Gaussian particles, the two ways to append a row agree."""
    x, log_rho = draw_standard_normal(20000, 2, torch.Generator().manual_seed(0))
    ledger: Ledger = []
    append_ledger_row(gaussian(), x, log_rho, 2.0, ledger)
    append_ledger_row(gaussian(), x, None, 2.0, ledger)
    assert ledger[0]["functional"] == pytest.approx(ledger[1]["functional"], abs=0.05)
    # E[V] = (tr precision + mean' precision mean) / 2 under N(0, I).
    assert ledger[0]["potential"] == pytest.approx((3 + 4) / 2, rel=0.03)


def test_temperature_scales_the_spread() -> None:
    """For a nearly Gaussian posterior exp(-V / T), four times the temperature doubles the spread."""
    X, y = logistic_rows(800)
    cold, warm = (
        np.array(fit_function("langevin")(X, y, request(temperature=T)).notes["theta_std"]) for T in (0.25, 1.0)
    )
    np.testing.assert_allclose(warm / cold, 2.0, rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("seed", range(2))
def test_diabetes_light_is_as_good_as_logistic_regression(name: str, seed: int, paper_files: object) -> None:
    """Both use the same split, because the log-likelihood differs by .07 between splits, and little between methods."""
    config = config_of("dataset=diabetes", "dataset.train_fraction=0.8").dataset
    table = registry.load(config)
    train, test = split_rows(table, config, seed)
    scale, y = minmax(table.X[train], top=2.0), 2.0 * table.target - 1.0
    X = scale(table.X) - 1
    plain = LogisticRegression(C=20, fit_intercept=False).fit(X[train], y[train])
    scores = []
    for p in (
        fit_function(name)(X[train], y[train], request(seed)).probability(X[test]),
        plain.predict_proba(X[test])[:, 1],
    ):
        right = y[test] > 0
        scores.append((((p > 0.5) == right).mean(), np.log(np.where(right, p, 1 - p)).mean()))
    (accuracy, likelihood), (plain_accuracy, plain_likelihood) = scores
    assert accuracy > plain_accuracy - 0.025
    assert abs(likelihood - plain_likelihood) < 0.01


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_trial_takes_one_step_of_everything(name: str) -> None:
    X = np.array([[1.0, 0.5], [-1.0, 0.2], [0.3, -1.0]])
    fitted = fit_function(name)(X, np.array([1.0, -1.0, 1.0]), replace(request(), preset="paper", trial=True))
    assert fitted.probability(X).shape == (3,)
    assert len(fitted.notes["ledger"]) < 10


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
