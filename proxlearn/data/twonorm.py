"""The loader of the twonorm dataset: two normal distributions in 20 dimensions, used in Table 4 of the paper.

The accuracy of the Bayes classifier is 0.97725.
"""

from __future__ import annotations

from functools import partial

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import dataset_files, scaling
from proxlearn.data.table import DatasetInfo, Table

FILE = dataset_files.keel_file("twonorm.dat", "4e1a341d055572eb72be548e438b575e299b7e720fc1776f3cddb39a69eba2f3")
INFO = DatasetInfo(7400, 20, 2, dataset_files.KEEL_SOURCE, dataset_files.KEEL_LICENCE, FILE, reads=("path",))


def load(config: DatasetConfig) -> Table:
    X, target = dataset_files.parse_keel(dataset_files.read(FILE, config.path), labels=("0", "1"))
    return Table(
        X,
        target,
        tuple(f"At{i + 1}" for i in range(20)),
        "binary",
        FILE.sha256,
        classes=("0", "1"),
        paper_scaling=partial(scaling.constant_factor, factor=8.0),
    )
