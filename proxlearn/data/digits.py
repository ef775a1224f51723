"""Handwritten digits as scikit-learn carries them, 8 x 8 pixels: ten classes with no download."""

from __future__ import annotations

import numpy as np

from proxlearn.data.files import digest
from proxlearn.data.table import About, Table
from proxlearn.schema import DatasetConfig

ABOUT = About(1797, 64, 10, "UCI archive, data set 80, within scikit-learn", "CC BY 4.0")


def load(config: DatasetConfig) -> Table:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # Ink from 0 to 16 becomes [-1, 1], as SHD's pixels are.
    X = np.ascontiguousarray(bunch.data, dtype=np.float64) / 8 - 1
    target = bunch.target.astype(np.int64)
    return Table(
        X,
        target,
        tuple(bunch.feature_names),
        "multiclass",
        digest(X.tobytes() + target.tobytes()),
        classes=tuple("0123456789"),
        image=(8, 8),
    )
