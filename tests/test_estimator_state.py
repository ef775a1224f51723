"""The state of an estimator belongs to its last fit: the noise of its own steps, and nothing of a fit that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from proxlearn import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import Selection
from tests.test_estimator import QUICK, moons, wave

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
