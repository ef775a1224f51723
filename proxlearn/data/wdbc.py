"""Wisconsin Diagnostic Breast Cancer, as scikit-learn carries it (features identical to the paper's file)."""

from __future__ import annotations

import hashlib

import numpy as np

from proxlearn.data.table import Table
from proxlearn.schema import DatasetConfig


def load(config: DatasetConfig) -> Table:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    X = np.ascontiguousarray(bunch.data, dtype=np.float64)
    # The paper's positive class is malignant; scikit-learn's is benign.
    target = 1 - bunch.target.astype(np.int64)
    digest = hashlib.sha256(X.tobytes() + target.tobytes()).hexdigest()
    return Table(X, target, tuple(bunch.feature_names), "binary", digest, classes=("benign", "malignant"))
