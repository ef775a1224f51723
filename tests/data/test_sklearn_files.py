"""What is read from scikit-learn's files is what scikit-learn itself returns."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from proxlearn.data import digits, wdbc
from tests.conftest import config_of


def test_wdbc_is_scikit_learns_with_malignant_as_class_1() -> None:
    bunch, table = load_breast_cancer(), wdbc.load(config_of("dataset=wdbc").dataset)
    assert np.array_equal(table.X, bunch.data)
    assert np.array_equal(table.target, 1 - bunch.target)
    expected = [name.replace(" ", "_") for name in bunch.feature_names]
    columns = [f"{c.split('_', 1)[1]}_error" if c.startswith("error_") else c for c in table.columns]
    assert columns == expected


def test_digits_are_scikit_learns_scaled_to_one() -> None:
    bunch, table = load_digits(), digits.load(config_of("dataset=digits").dataset)
    assert np.array_equal(table.X, bunch.data / 8 - 1)
    assert np.array_equal(table.target, bunch.target)
