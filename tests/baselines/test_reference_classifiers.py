"""Reference methods give the results of scikit-learn, and the Bayes rule is optimal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from proxlearn.baselines import reference_classifiers as references
from proxlearn.baselines.registry import METHODS, OURS, Request, find_method, load_fit
from proxlearn.errors import InputError

REQUEST = Request("twonorm", seed=3)
SHIFT = 2 / math.sqrt(20)


def twonorm(rows: int, seed: int = 0, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], rows)
    return rng.normal(size=(rows, 20)) + sign * SHIFT * y[:, None], y


@pytest.mark.parametrize(
    "name, model",
    [
        ("logistic", LogisticRegression()),
        ("svm", CalibratedClassifierCV(SVC(), ensemble=False)),
        ("boosting", GradientBoostingClassifier(random_state=3)),
    ],
)
def test_they_are_scikit_learns_own(name, model) -> None:
    (X, y), (Z, w) = twonorm(200), twonorm(100, seed=1)
    # Labels the other way round than the features' means, so that a mistaken column would be seen.
    p = getattr(references, name)(X, -y, REQUEST).probability(Z)
    own = model.fit(X, -y)
    np.testing.assert_array_equal(p, own.predict_proba(Z)[:, 1])
    assert np.mean(np.where(p > 0.5, 1, -1) == -w) == own.score(Z, -w)


def test_the_majority_class_is_the_training_parts() -> None:
    y = np.array([1.0] * 7 + [-1.0] * 3)
    np.testing.assert_array_equal(references.majority(np.zeros((10, 2)), y, REQUEST).probability(np.ones((4, 2))), 0.7)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_bayes_rule_is_the_posterior_and_is_right_as_often_as_it_must_be(sign) -> None:
    X, y = twonorm(500, sign=sign)
    rule = references.bayes(X, y, REQUEST).probability
    Z, w = twonorm(200_000, seed=1, sign=sign)
    p = rule(Z)
    plus, minus = (multivariate_normal(np.full(20, side * sign * SHIFT), np.eye(20)).pdf(Z[:50]) for side in (1, -1))
    np.testing.assert_allclose(p[:50], plus / (plus + minus), rtol=1e-9)
    expected = 0.5 * (1 + math.erf(math.sqrt(2)))
    assert expected == pytest.approx(0.97725, abs=5e-6)
    error = math.sqrt(expected * (1 - expected) / len(w))
    assert abs(np.mean((p > 0.5) == (w > 0)) - expected) < 3 * error


def test_the_bayes_rule_does_not_overflow() -> None:
    rule = references.bayes(*twonorm(50), REQUEST).probability
    assert rule(np.full((1, 20), 1e6)).tolist() == [1.0]
    assert rule(np.full((1, 20), -1e6)).tolist() == [0.0]


# The registry: names, blocks, and where the methods are.
def test_every_method_is_under_its_name_and_ours_is_first() -> None:
    assert all(name == method.name for name, method in METHODS.items())
    assert next(iter(METHODS)) == OURS
    assert {method.block for method in METHODS.values()} == {"network", "sampler", "reference"}


@pytest.mark.parametrize("name", METHODS)
def test_its_function_is_there(name) -> None:
    assert callable(load_fit(METHODS[name]))


def test_a_misspelt_one_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean `adam`"):
        find_method("adm")
