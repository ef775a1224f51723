"""The loader of scikit-learn's digits dataset: images of handwritten digits with 8 x 8 pixels, in ten classes."""

from __future__ import annotations

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data.dataset_files import digest, read_sklearn_rows
from proxlearn.data.table import DatasetInfo, Table

INFO = DatasetInfo(1797, 64, 10, "UCI archive, data set 80, within scikit-learn", "CC BY 4.0")


def load(config: DatasetConfig) -> Table:
    rows = read_sklearn_rows("digits.csv.gz")
    # Pixel values from 0 to 16 are mapped to [-1, 1], the range of the pixels of SHD.
    X = np.ascontiguousarray(rows[:, :-1]) / 8 - 1
    target = rows[:, -1].astype(np.int64)
    return Table(
        X,
        target,
        tuple(f"pixel_{i // 8}_{i % 8}" for i in range(64)),
        "multiclass",
        digest(X.tobytes() + target.tobytes()),
        classes=tuple("0123456789"),
        image=(8, 8),
    )
