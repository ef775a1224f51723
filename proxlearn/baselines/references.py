"""Reference lines: what costs milliseconds and must be beaten, and what cannot be beaten.

scikit-learn's own defaults. Its support vector machine has no probabilities of its own: they come from a logistic curve
fitted to cross-validated scores, as its documentation advises in the place of ``SVC(probability=True)``, so that its
accuracy here is that of these probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from proxlearn.baselines.method import FittedMethod, Preset, Request


def majority(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """The share of the class +1, whatever the features."""
    share = float((y > 0).mean())
    return FittedMethod(lambda rows: np.full(len(rows), share), {"share": share})


def model_of(function: str, seed: int | None = None) -> Any:
    """The scikit-learn model of a reference line."""
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
    """How the model is constructed, the seed left open; the other two lines have no settings."""
    return {"model": repr(model_of(function))} if function in ("logistic", "svm", "boosting") else {}


def logistic(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _fit_model(model_of("logistic"), X, y)


def svm(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _fit_model(model_of("svm"), X, y)


def boosting(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    return _fit_model(model_of("boosting", request.seed), X, y)


def bayes(X: np.ndarray, y: np.ndarray, request: Request) -> FittedMethod:
    """The best that anybody can do on twonorm, on its raw features: right with probability Phi(2) = .97725.

    Two classes, equally likely, each normal with unit covariance around m or -m, m = (a, ..., a), a = 2 / sqrt(20). The
    log of their densities' ratio is (|x + m|^2 - |x - m|^2) / 2 = 2 <m, x>. Which label has which sign is a matter of
    the file, and all that is taken from the training rows.
    """
    a = 2 / math.sqrt(X.shape[1])
    sign = float(np.sign(y @ X.sum(axis=1)))
    return FittedMethod(lambda rows: _logistic(2 * a * sign * rows.sum(axis=1)), {"sign": sign})


def _logistic(values: np.ndarray) -> np.ndarray:
    # Through tanh, which does not overflow.
    found: np.ndarray = (1 + np.tanh(values / 2)) / 2
    return found


def _fit_model(model: Any, X: np.ndarray, y: np.ndarray) -> FittedMethod:
    model.fit(X, y)
    positive = list(model.classes_).index(1)

    def probability(rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = model.predict_proba(rows)[:, positive]
        return found

    return FittedMethod(probability)
