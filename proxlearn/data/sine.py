"""The loader of the sine dataset: sin(x) at equispaced training points in [-pi, pi] and at test points between them."""

from __future__ import annotations

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import scaling
from proxlearn.data.dataset_files import digest
from proxlearn.data.table import DatasetInfo, Table
from proxlearn.errors import InputError

INFO = DatasetInfo(None, 1, None, "computed: dataset.points=...", "none needed", reads=("points",))


def load(config: DatasetConfig) -> Table:
    if config.points is None:
        raise InputError("dataset=sine needs the number of points", "set it, for example with dataset.points=100")
    train = np.linspace(-np.pi, np.pi, config.points)
    x = np.concatenate((train, (train[1:] + train[:-1]) / 2))
    X, target = x[:, None], np.sin(x)
    sha256 = digest(X.tobytes() + target.tobytes())
    return Table(X, target, ("x",), "regression", sha256, train_rows=config.points, paper_scaling=scaling.none)
