"""Wisconsin Diagnostic Breast Cancer, as scikit-learn carries it (features identical to the paper's file)."""

from __future__ import annotations

import numpy as np

from proxlearn.data import scaling
from proxlearn.data.files import digest
from proxlearn.data.table import About, Table
from proxlearn.schema import DatasetConfig

ABOUT = About(569, 30, 2, "UCI archive, data set 17, within scikit-learn", "CC BY 4.0")


def load(config: DatasetConfig) -> Table:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    X = np.ascontiguousarray(bunch.data, dtype=np.float64)
    # The paper's positive class is malignant; scikit-learn's is benign.
    target = 1 - bunch.target.astype(np.int64)
    return Table(
        X,
        target,
        tuple(bunch.feature_names),
        "binary",
        digest(X.tobytes() + target.tobytes()),
        classes=("benign", "malignant"),
        paper_scaling=scaling.none,
    )
