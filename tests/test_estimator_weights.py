"""Sample weights of the estimators: F = sum s_m l_m / sum s_m, in fit, partial_fit and score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score

from proxlearn import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.data.scaling import standard
from proxlearn.training.fit import risk_of
from proxlearn.training.successive_halving import hold_out
from tests.test_estimator import QUICK, moons, wave
from tests.test_estimator_losses import PAPER

torch.set_num_threads(1)

LOSSES: list[tuple[type, str]] = [
    (ProxLearnClassifier, "quadratic"),
    (ProxLearnClassifier, "logistic"),
    (ProxLearnRegressor, "quadratic"),
    (ProxLearnRegressor, "huber"),
]
SMALL = QUICK | {"N": 20, "steps": 12}


def rows_of(make: type) -> tuple[np.ndarray, np.ndarray]:
    return moons() if make is ProxLearnClassifier else wave()


def assert_same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.particles_, other.particles_)
    np.testing.assert_array_equal(one.weights_, other.weights_)
    if isinstance(one, ProxLearnRegressor):
        np.testing.assert_array_equal(one.noise_, other.noise_)


@pytest.mark.parametrize("make, loss", LOSSES)
def test_equal_weights_are_no_weights(make: type, loss: str) -> None:
    X, y = rows_of(make)
    plain = make(**SMALL, loss=loss).fit(X, y)
    for weight in (3, 0.1, np.full(len(y), 1e300)):
        assert_same(make(**SMALL, loss=loss).fit(X, y, sample_weight=weight), plain)


@pytest.mark.parametrize("settings", [SMALL, {"N": 20, "steps": 12, "random_state": 0}])
@pytest.mark.parametrize("make, loss", LOSSES)
def test_a_row_of_weight_0_is_removed(make: type, loss: str, settings: dict[str, Any]) -> None:
    """This holds bit for bit, even if selection chooses the settings."""
    X, y = rows_of(make)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y)) * (np.arange(len(y)) % 5 != 0)
    kept = weights > 0
    spoilt = np.where(kept[:, None], X, 1e6)
    removed = make(**settings, loss=loss).fit(X[kept], y[kept], sample_weight=weights[kept])
    assert_same(make(**settings, loss=loss).fit(spoilt, y, sample_weight=weights), removed)


@pytest.mark.parametrize("make, loss", LOSSES)
def test_a_whole_weight_repeats_its_row(make: type, loss: str) -> None:
    X, y = rows_of(make)
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    settings = SMALL | {"dtype": "float64", "loss": loss}
    weighted = make(**settings).fit(X, y, sample_weight=weights)
    repeated = make(**settings).fit(X.repeat(weights, axis=0), y.repeat(weights))
    np.testing.assert_allclose(weighted.particles_, repeated.particles_, rtol=1e-8, atol=1e-10)
    assert weighted.history_[-1]["train_risk"] == pytest.approx(repeated.history_[-1]["train_risk"], rel=1e-9)
    if make is ProxLearnRegressor:
        np.testing.assert_allclose(weighted.noise_, repeated.noise_, rtol=1e-9)


def test_the_scale_of_the_weights_has_no_effect() -> None:
    X, y = moons()
    weights = np.random.default_rng(2).uniform(0.5, 2, len(y))
    one, other = (ProxLearnClassifier(**SMALL).fit(X, y, sample_weight=c * weights) for c in (1.0, 2.0**40))
    assert_same(one, other)


@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_weights_balance_rare_classes(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate((rng.normal(-0.7, 1, (400, 2)), rng.normal(0.7, 1, (20, 2))))
    y = np.repeat([0, 1], [400, 20])
    balanced = np.where(y == 1, 20.0, 1.0)
    recalls = [
        ProxLearnClassifier(**QUICK, loss=loss).fit(X, y, sample_weight=weights).predict(X)[y == 1].mean()
        for weights in (None, balanced)
    ]
    assert recalls[1] > recalls[0] + 0.2


def test_pieces_take_weights() -> None:
    X, y = moons()
    weights = np.random.default_rng(3).uniform(0, 2, len(y))
    whole = ProxLearnClassifier(**SMALL).fit(X, y, sample_weight=weights)
    pieces = ProxLearnClassifier(**SMALL)
    for _ in range(3):
        pieces.partial_fit(X, y, steps=4, sample_weight=weights)
    assert_same(pieces, whole)
    X, y = wave()
    weights = np.random.default_rng(3).uniform(0, 2, len(y))
    piece = ProxLearnRegressor(**SMALL).partial_fit(X, y, steps=12, sample_weight=weights)
    assert_same(piece, ProxLearnRegressor(**SMALL).fit(X, y, sample_weight=weights))


def test_scores_take_weights() -> None:
    for make, metric in ((ProxLearnClassifier, accuracy_score), (ProxLearnRegressor, r2_score)):
        X, y = rows_of(make)
        weights = np.random.default_rng(4).uniform(0, 2, len(y))
        fitted = make(**SMALL).fit(X, y)
        expected = metric(y, fitted.predict(X), sample_weight=weights)
        assert fitted.score(X, y, sample_weight=weights) == pytest.approx(expected)


def test_mini_batches_take_weights() -> None:
    X, y = moons()
    weights = np.where(y == 1, 10.0, 1.0)
    fitted = ProxLearnClassifier(**QUICK | {"steps": 150, "batch_size": 64}).fit(X, y, sample_weight=weights)
    assert fitted.predict(X)[y == 1].mean() > 0.95


def test_classes_of_weight_0_are_removed() -> None:
    X, y = moons()
    three = np.where(np.arange(len(y)) % 10 == 0, 2, y)
    fitted = ProxLearnClassifier(**SMALL, loss="logistic").fit(X, three, sample_weight=three != 2)
    assert list(fitted.classes_) == [0, 1]
    with pytest.raises(ValueError, match="rows of positive weight hold only one class"):
        ProxLearnClassifier(**SMALL).fit(X, y, sample_weight=y)


@pytest.mark.parametrize(
    "weights, message",
    [
        (np.zeros(200), "zero"),
        (-np.ones(200), "[Nn]egative"),
        (np.full(200, np.nan), "NaN"),
        (np.ones(3), "sample_weight"),
        (np.ones((200, 2)), "1D"),
    ],
)
def test_weights_are_validated(weights: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProxLearnClassifier(**SMALL).fit(*moons(), sample_weight=weights)


def test_the_literal_solver_refuses_weights() -> None:
    X, y = moons()
    literal = ProxLearnClassifier(**SMALL | PAPER | {"beta": 5.0, "h": 1e-2}, solver="literal")
    with pytest.raises(ValueError, match="solver=literal does not support sample weights; use solver=closed_form"):
        literal.fit(X, y, sample_weight=1.0 + y)
    assert_same(literal.fit(X, y, sample_weight=2 * np.ones(len(y))), literal.fit(X, y))


def test_messages_count_the_rows_that_were_given() -> None:
    X, y = moons()
    X[7, 1] = 1e302
    with pytest.raises(ValueError, match=r"feature 1 .* in row 7,"):
        ProxLearnClassifier(**SMALL).fit(X, y, sample_weight=np.arange(len(y)) > 3)


def test_the_hold_out_keeps_weights_of_mean_1_and_the_risk_is_weighted() -> None:
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.uniform(0, 3, 80))
    samples = Samples(torch.from_numpy(rng.normal(size=(80, 2))), torch.from_numpy(rng.normal(size=80)))
    samples = samples.with_weights(weights)
    training, validation = hold_out(samples, 0)
    assert training.weights is not None
    assert float(training.weights.mean()) == pytest.approx(1)
    fitted = ProxLearnRegressor(**SMALL).fit(samples.X.numpy(), samples.y.numpy())
    risk = Risk.from_samples(Perceptron(), samples)
    cloud = fitted._model.cloud
    f = fitted._model.neuron.outputs(cloud.theta, validation.X)[:, 0].T @ torch.softmax(cloud.log_rho, dim=0)
    expected = np.average((f - validation.y).numpy() ** 2, weights=validation.weights)
    assert risk_of(risk, cloud, validation) == pytest.approx(expected)


@pytest.mark.parametrize("unit", [1.0, 1e200, 1e-200])
def test_standardisation_is_weighted(unit: float) -> None:
    rng = np.random.default_rng(0)
    X, weights = rng.normal(3, 2, (50, 2)), rng.integers(1, 5, 50)
    repeated = standard(unit * X.repeat(weights, axis=0))
    weighted = standard(unit * X, weights / weights.max())
    np.testing.assert_allclose(weighted.shift, repeated.shift, rtol=1e-12)
    np.testing.assert_allclose(weighted.factor, repeated.factor, rtol=1e-12)
    constant = standard(np.full((50, 1), 0.1), weights / weights.max())
    assert constant.factor == 1
