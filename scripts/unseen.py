"""How the estimators do on tables that nobody looked at while building them: wine, iris, scikit-learn's diabetes.

Five random 70/30 splits, scikit-learn's defaults with standardised features beside it; prints a table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from proxlearn import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.core.metrics import calibration_error
from proxlearn.views.markdown import markdown

SPLITS = 5
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "proxlearn": lambda: ProxLearnClassifier(random_state=0),
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "RBF-SVM": lambda: make_pipeline(StandardScaler(), SVC()),
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "proxlearn": lambda: ProxLearnRegressor(random_state=0),
    "linear regression": lambda: make_pipeline(StandardScaler(), LinearRegression()),
    "RBF-SVM": lambda: make_pipeline(StandardScaler(), SVR()),
}


def main() -> None:
    rows = []
    for name, load in (("wine", load_wine), ("iris", load_iris), ("diabetes (regression)", load_diabetes)):
        X, y = load(return_X_y=True)
        learners = CLASSIFIERS if y.dtype.kind == "i" else REGRESSORS
        for learner, make in learners.items():
            found = pd.DataFrame([figures(make(), X, y, seed) for seed in range(SPLITS)])
            means, deviations = found.mean(), found.std()
            cells = {column: f"{means[column]:.3f} ± {deviations[column]:.3f}" for column in found.columns}
            rows.append({"data": name, "learner": learner, **cells})
    print(markdown(pd.DataFrame(rows)))


def figures(learner: Any, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
    start = time.monotonic()
    learner.fit(X_train, y_train)
    seconds = time.monotonic() - start
    if y.dtype.kind == "f":
        return {"r2": learner.score(X_test, y_test), "seconds": seconds}
    found = {"accuracy": learner.score(X_test, y_test)}
    if hasattr(learner, "predict_proba"):
        p = learner.predict_proba(X_test).clip(1e-6, None)
        p /= p.sum(axis=1, keepdims=True)
        found["log_loss"] = log_loss(y_test, p, labels=learner.classes_)
        found["calibration_error"] = float(calibration_error(torch.from_numpy(p.T), torch.from_numpy(y_test)))
    return found | {"seconds": seconds}


if __name__ == "__main__":
    main()
