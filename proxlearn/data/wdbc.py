"""The loader of scikit-learn's Wisconsin Diagnostic Breast Cancer dataset (WDBC), used in the paper."""

from __future__ import annotations

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import scaling
from proxlearn.data.dataset_files import digest, read_sklearn_rows
from proxlearn.data.table import DatasetInfo, Table

INFO = DatasetInfo(569, 30, 2, "UCI archive, data set 17, within scikit-learn", "CC BY 4.0")

MEASURES = "radius texture perimeter area smoothness compactness concavity concave_points symmetry fractal_dimension"
COLUMNS = tuple(f"{kind}_{measure}" for kind in ("mean", "error", "worst") for measure in MEASURES.split())


def load(config: DatasetConfig) -> Table:
    rows = read_sklearn_rows("breast_cancer.csv")
    X = np.ascontiguousarray(rows[:, :-1])
    # The positive class is malignant in the paper, but benign in the file.
    target = 1 - rows[:, -1].astype(np.int64)
    return Table(
        X,
        target,
        COLUMNS,
        "binary",
        digest(X.tobytes() + target.tobytes()),
        classes=("benign", "malignant"),
        paper_scaling=scaling.none,
    )
