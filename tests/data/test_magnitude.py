"""Numbers of any size are scaled without overflow, or refused by their column's name; predictions are finite."""

from __future__ import annotations

import numpy as np
import pytest

from proxlearn import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.data.magnitude import check_scaled, check_scaler, max_scaled_magnitude
from proxlearn.data.scaling import standard
from proxlearn.errors import InputError

QUICK = {"N": 10, "steps": 3, "beta": 1e5, "h": 0.5, "epsilon": 1.0, "init_scale": 1.0, "random_state": 0, "threads": 1}


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e-3, 1.0, 1e160, 1e200, 1e299])
def test_standardising_does_not_depend_on_the_unit(unit: float) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    np.testing.assert_allclose(standard(X * unit)(X * unit), standard(X)(X), rtol=1e-9, atol=1e-12)


def test_a_constant_column_is_zero_whatever_its_size() -> None:
    X = np.column_stack([np.full(7, 1e200 / 3), np.arange(7.0)])
    assert np.abs(standard(X)(X)[:, 0]).max() == 0


def test_what_cannot_be_scaled_or_held_is_refused_by_name() -> None:
    X = np.array([[1e-310, 1.0], [3e-310, 2.0]])
    with pytest.raises(InputError, match=r"^a cannot be scaled"):
        check_scaler(standard(X), ["a", "b"])
    rows = np.array([[1.0, 2.0], [1.0, 1e200]])
    with pytest.raises(InputError, match=r"^b holds 1e\+200 in row 1, which is too large once"):
        check_scaled(rows, rows, ["a", "b"], max_scaled_magnitude("float32"), lambda i: f"row {i}", "correct it")
    check_scaled(rows, rows / 1e100, ["a", "b"], max_scaled_magnitude("float32", "float64"), str, "correct it")


def test_estimators_learn_from_large_numbers_and_refuse_impossible_ones() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] - X[:, 1] ** 2
    fitted = ProxLearnRegressor(**QUICK).fit(X * 1e200, y * 1e200)
    assert np.isfinite(fitted.predict(X * 1e200)).all()
    assert np.isfinite(fitted.noise_).all()
    classifier = ProxLearnClassifier(**QUICK).fit(X, y > 0)
    p = classifier.predict_proba(np.array([[1e200, -1e200], [1e200, 1e200]]))
    assert np.isfinite(p).all()
    with pytest.raises(ValueError, match=r"feature . holds .* too far"):
        classifier.predict(np.array([[1.7e308, -1.7e308]]))
    with pytest.raises(ValueError, match=r"feature 1 holds 1e\+305 in row 3, which is too large"):
        ProxLearnRegressor(**QUICK).fit(np.where(np.arange(80).reshape(40, 2) == 7, 1e305, X), y)
    with pytest.raises(ValueError, match=r"feature 0 holds .* once it is scaled"):
        classifier.partial_fit(X * 1e200, y > 0)
