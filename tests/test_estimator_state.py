"""The state of an estimator belongs to its last fit: the noise of its own steps, and nothing of a fit that failed.

Sample weights of the estimators: F = sum s_m l_m / sum s_m, in fit, partial_fit and score.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score

from proxlearn import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples, hold_out
from proxlearn.data.scaling import standard
from proxlearn.training.fit import risk_of
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import Selection
from tests.test_estimator import QUICK, moons, wave
from tests.test_estimator_losses import PAPER

torch.set_num_threads(1)

SMALL = QUICK | {"N": 12, "steps": 5}


def test_the_noise_is_that_of_the_steps_the_fit_has() -> None:
    X, y = wave(600)
    for steps in (0, 3, 30):
        fitted = ProxLearnRegressor(N=40, random_state=0, threads=1, steps=steps).fit(X[:150], y[:150])
        error = np.sqrt(np.mean((fitted.predict(X[150:]) - y[150:]) ** 2))
        assert 0.8 * error < fitted.noise_[0] < 1.5 * error
        lower, upper = fitted.predict_interval(X[150:], 0.9)
        assert np.mean((lower <= y[150:]) & (y[150:] <= upper)) > 0.84, steps


def test_a_first_piece_has_the_noise_of_its_few_steps() -> None:
    X, y = wave(600)
    fitted = ProxLearnRegressor(N=40, random_state=0, threads=1).partial_fit(X[:150], y[:150], steps=3)
    error = np.sqrt(np.mean((fitted.predict(X[150:]) - y[150:]) ** 2))
    assert 0.8 * error < fitted.noise_[0] < 1.5 * error


def test_the_risk_of_a_step_is_never_less_than_what_was_recorded_about_it() -> None:
    selection = Selection(Settings(), (), ((1, 4.0), (2, 3.0), (5, 1.0), (9, 2.0)))
    assert [selection.risk_at(step) for step in (0, 1, 2, 3, 5, 7, 9, 100)] == [None, 4.0, 3.0, 3.0, 1.0, 2.0, 2.0, 2.0]
    assert selection.best_step == 5


def interrupt(*_: object) -> None:
    raise RuntimeError("a callback that fails")


def bad_n(model: Any, X: np.ndarray, y: np.ndarray) -> None:
    model.set_params(N=-1).fit(X, y)


def bad_callback(model: Any, X: np.ndarray, y: np.ndarray) -> None:
    model.set_params(callbacks=[interrupt]).fit(X, y)


def too_large(model: Any, X: np.ndarray, y: np.ndarray) -> None:
    model.fit(np.where(np.arange(X.size).reshape(X.shape) == 3, 1e301, X), y)


def other_columns(model: Any, X: np.ndarray, y: np.ndarray) -> None:
    model.set_params(N=-1).fit(np.hstack([X, X]), y)


def failing_piece(model: Any, X: np.ndarray, y: np.ndarray) -> None:
    model.set_params(callbacks=[interrupt]).partial_fit(X, model.predict(X), steps=2)


def interrupted_selection(model: Any, X: np.ndarray, y: np.ndarray) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxlearn.estimator_base.select", _interrupted)
        model.set_params(h=None).fit(X, y)


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


FAILURES = (bad_n, bad_callback, too_large, other_columns, failing_piece, interrupted_selection)


def fitted_state(model: Any) -> dict[str, object]:
    return {name: value for name, value in vars(model).items() if name not in model.get_params()}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_refit_that_fails_leaves_the_last_fit(failure: Callable) -> None:
    X, y = moons()
    other = np.where(y == 1, "A", "B")
    for model, first, second in (
        (ProxLearnClassifier(**SMALL), np.where(y == 1, "yes", "no"), other),
        (ProxLearnRegressor(**SMALL), y * 3.0, y * 1e6),
    ):
        model.fit(X, first)
        before, answers = fitted_state(model), model.predict(X)
        with pytest.raises((ValueError, RuntimeError, KeyboardInterrupt)):
            failure(model, X, second)
        after = fitted_state(model)
        assert after.keys() == before.keys()
        assert all(after[name] is before[name] for name in before)
        np.testing.assert_array_equal(model.predict(X), answers)


def test_a_first_fit_that_fails_leaves_nothing_but_the_parameters() -> None:
    X, y = moons()
    model = ProxLearnClassifier(**SMALL | {"N": -1})
    with pytest.raises(ValueError, match="N"):
        model.fit(X, y)
    assert not fitted_state(model)
    assert model.N == -1


def test_a_further_piece_cannot_change_the_classes() -> None:
    X, y = moons()
    model = ProxLearnClassifier(**SMALL).partial_fit(X, y, classes=[0, 1], steps=2)
    model.partial_fit(X, y, classes=[1, 0], steps=1)
    for other in ([0, 1, 2], [0], ["a", "b"]):
        with pytest.raises(ValueError, match="classes="):
            model.partial_fit(X, y, classes=other, steps=1)
    assert model.n_steps_ == 3


@pytest.mark.parametrize("make", [ProxLearnClassifier, ProxLearnRegressor])
def test_a_callback_that_returns_true_stops_the_fit_and_it_can_be_continued(make: Any) -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    seen: list[int] = []
    model = make(**QUICK, callbacks=[lambda row, cloud: row["step"] >= 6, lambda row, cloud: seen.append(row["step"])])
    assert model.fit(X, y).n_steps_ == 6 == seen[-1]
    model.set_params(callbacks=[]).partial_fit(X, y, steps=QUICK["steps"] - 6)
    whole = make(**QUICK).fit(X, y)
    assert (model.particles_ == whole.particles_).all()
    for callbacks, message in (
        (print, "not a list; write callbacks="),
        ([1], "the entry 1 of callbacks is not callable"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**QUICK, callbacks=callbacks).fit(X, y)


torch.set_num_threads(1)

LOSSES: list[tuple[type, str]] = [
    (ProxLearnClassifier, "quadratic"),
    (ProxLearnClassifier, "logistic"),
    (ProxLearnRegressor, "quadratic"),
    (ProxLearnRegressor, "huber"),
]
SMALL_WEIGHTED = QUICK | {"N": 20, "steps": 12}


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
    plain = make(**SMALL_WEIGHTED, loss=loss).fit(X, y)
    for weight in (3, 0.1, np.full(len(y), 1e300)):
        assert_same(make(**SMALL_WEIGHTED, loss=loss).fit(X, y, sample_weight=weight), plain)


@pytest.mark.parametrize("settings", [SMALL_WEIGHTED, {"N": 20, "steps": 12, "random_state": 0}])
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
    settings = SMALL_WEIGHTED | {"dtype": "float64", "loss": loss}
    weighted = make(**settings).fit(X, y, sample_weight=weights)
    repeated = make(**settings).fit(X.repeat(weights, axis=0), y.repeat(weights))
    np.testing.assert_allclose(weighted.particles_, repeated.particles_, rtol=1e-8, atol=1e-10)
    assert weighted.history_[-1]["train_risk"] == pytest.approx(repeated.history_[-1]["train_risk"], rel=1e-9)
    if make is ProxLearnRegressor:
        np.testing.assert_allclose(weighted.noise_, repeated.noise_, rtol=1e-9)


def test_the_scale_of_the_weights_has_no_effect() -> None:
    X, y = moons()
    weights = np.random.default_rng(2).uniform(0.5, 2, len(y))
    one, other = (ProxLearnClassifier(**SMALL_WEIGHTED).fit(X, y, sample_weight=c * weights) for c in (1.0, 2.0**40))
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
    whole = ProxLearnClassifier(**SMALL_WEIGHTED).fit(X, y, sample_weight=weights)
    pieces = ProxLearnClassifier(**SMALL_WEIGHTED)
    for _ in range(3):
        pieces.partial_fit(X, y, steps=4, sample_weight=weights)
    assert_same(pieces, whole)
    X, y = wave()
    weights = np.random.default_rng(3).uniform(0, 2, len(y))
    piece = ProxLearnRegressor(**SMALL_WEIGHTED).partial_fit(X, y, steps=12, sample_weight=weights)
    assert_same(piece, ProxLearnRegressor(**SMALL_WEIGHTED).fit(X, y, sample_weight=weights))


def test_scores_take_weights() -> None:
    for make, metric in ((ProxLearnClassifier, accuracy_score), (ProxLearnRegressor, r2_score)):
        X, y = rows_of(make)
        weights = np.random.default_rng(4).uniform(0, 2, len(y))
        fitted = make(**SMALL_WEIGHTED).fit(X, y)
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
    fitted = ProxLearnClassifier(**SMALL_WEIGHTED, loss="logistic").fit(X, three, sample_weight=three != 2)
    assert list(fitted.classes_) == [0, 1]
    with pytest.raises(ValueError, match="rows of positive weight contain only one class"):
        ProxLearnClassifier(**SMALL_WEIGHTED).fit(X, y, sample_weight=y)


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
        ProxLearnClassifier(**SMALL_WEIGHTED).fit(*moons(), sample_weight=weights)


def test_the_literal_solver_refuses_weights() -> None:
    X, y = moons()
    literal = ProxLearnClassifier(**SMALL_WEIGHTED | PAPER | {"beta": 5.0, "h": 1e-2}, solver="literal")
    with pytest.raises(ValueError, match="solver=literal does not support sample weights; use solver=closed_form"):
        literal.fit(X, y, sample_weight=1.0 + y)
    assert_same(literal.fit(X, y, sample_weight=2 * np.ones(len(y))), literal.fit(X, y))


def test_messages_count_the_rows_that_were_given() -> None:
    X, y = moons()
    X[7, 1] = 1e302
    with pytest.raises(ValueError, match=r"in row 7 of feature 1 is too large;"):
        ProxLearnClassifier(**SMALL_WEIGHTED).fit(X, y, sample_weight=np.arange(len(y)) > 3)


def test_the_hold_out_keeps_weights_of_mean_1_and_the_risk_is_weighted() -> None:
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.uniform(0, 3, 80))
    samples = Samples(torch.from_numpy(rng.normal(size=(80, 2))), torch.from_numpy(rng.normal(size=80)))
    samples = samples.with_weights(weights)
    training, validation = hold_out(samples, 0)
    assert training.weights is not None
    assert float(training.weights.mean()) == pytest.approx(1)
    fitted = ProxLearnRegressor(**SMALL_WEIGHTED).fit(samples.X.numpy(), samples.y.numpy())
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
