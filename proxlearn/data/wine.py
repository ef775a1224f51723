"""The loader of scikit-learn's wine dataset: chemical analyses of wines from three cultivars."""

from __future__ import annotations

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data.dataset_files import digest, read_sklearn_rows
from proxlearn.data.table import DatasetInfo, Table

INFO = DatasetInfo(178, 13, 3, "UCI archive, data set 109, within scikit-learn", "CC BY 4.0")

COLUMNS = (
    *("alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids"),
    *("nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280_od315_of_diluted_wines", "proline"),
)


def load(config: DatasetConfig) -> Table:
    rows = read_sklearn_rows("wine_data.csv")
    X = np.ascontiguousarray(rows[:, :-1])
    target = rows[:, -1].astype(np.int64)
    classes = ("class_0", "class_1", "class_2")
    return Table(X, target, COLUMNS, "multiclass", digest(X.tobytes() + target.tobytes()), classes=classes)
