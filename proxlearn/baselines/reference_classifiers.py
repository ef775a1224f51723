"""Reference methods: standard classifiers of scikit-learn, the majority class, and the Bayes rule of twonorm.

The classifiers have the default settings of scikit-learn. The support vector machine does not predict probabilities
itself. `CalibratedClassifierCV`, which the documentation of scikit-learn recommends instead of
``SVC(probability=True)``, computes them with a logistic curve fitted to cross-validated scores. The accuracy is
computed from these probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from proxlearn.baselines.registry import FittedMethod, Preset, Request


def majority(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Return a fitted method that predicts, for every row, the share of the class +1 in the training rows."""
    share = float((y > 0).mean())
    return FittedMethod(lambda rows: np.full(len(rows), share), {"share": share})


def make_model(function: str, seed: int | None = None) -> Any:
    """Return the scikit-learn model of the reference method called ``function``."""
    if function == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression()
    if function == "svm":
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.svm import SVC

        return CalibratedClassifierCV(SVC(), ensemble=False)
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(random_state=seed)


def settings(function: str, preset: Preset, dataset: str) -> dict[str, Any]:
    """Return {"model": r}, where r is the repr of the unseeded scikit-learn model, or {} if the method uses none."""
    return {"model": repr(make_model(function))} if function in ("logistic", "svm", "boosting") else {}


def logistic(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _fit_sklearn(make_model("logistic"), X, y)


def svm(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _fit_sklearn(make_model("svm"), X, y)


def boosting(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _fit_sklearn(make_model("boosting", request.seed), X, y)


def bayes(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """Return the optimal classifier for twonorm with unscaled features; its accuracy is Phi(2) = 0.97725.

    The classes are equally likely and normally distributed with unit covariance and the means m and -m, where m = (a,
    ..., a) and a = 2 / sqrt(20). The logarithm of the ratio of their densities is (|x + m|^2 - |x - m|^2) / 2 = 2 <m,
    x>. The class with the mean m is not the same in every file of the dataset, so it is estimated from the training
    rows.
    """
    a = 2 / math.sqrt(X.shape[1])
    sign = float(np.sign(y @ X.sum(axis=1)))
    return FittedMethod(lambda rows: _sigmoid(2 * a * sign * rows.sum(axis=1)), {"sign": sign})


def _sigmoid(values: np.ndarray) -> np.ndarray:
    # Unlike exp, tanh does not overflow.
    probabilities: np.ndarray = (1 + np.tanh(values / 2)) / 2
    return probabilities


def _fit_sklearn(model: Any, X: np.ndarray, y: np.ndarray) -> FittedMethod:
    model.fit(X, y)
    positive = list(model.classes_).index(1)

    def probability(rows: np.ndarray) -> np.ndarray:
        probabilities: np.ndarray = model.predict_proba(rows)[:, positive]
        return probabilities

    return FittedMethod(probability)
