"""sin(x) on [-pi, pi]: equispaced training points, and the midpoints between them for the test."""

from __future__ import annotations

import hashlib

import numpy as np

from proxlearn.data.table import Table
from proxlearn.errors import InputError
from proxlearn.schema import DatasetConfig


def load(config: DatasetConfig) -> Table:
    if config.points is None:
        raise InputError("dataset=sine needs a number of points", "try dataset.points=100")
    train = np.linspace(-np.pi, np.pi, config.points)
    x = np.concatenate((train, (train[1:] + train[:-1]) / 2))
    X, target = x[:, None], np.sin(x)
    digest = hashlib.sha256(X.tobytes() + target.tobytes()).hexdigest()
    return Table(X, target, ("x",), "regression", digest, train_rows=config.points)
