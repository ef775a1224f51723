"""The loader of the banana dataset: two interleaved crescents in the plane, used in Table 4 of the paper."""

from __future__ import annotations

from functools import partial

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import dataset_files, scaling
from proxlearn.data.table import DatasetInfo, Table

FILE = dataset_files.keel_file("banana.dat", "5bd625660e17b219ffb44019e973db014dd1726ffde309e881d3942436508b80")
INFO = DatasetInfo(5300, 2, 2, dataset_files.KEEL_SOURCE, dataset_files.KEEL_LICENCE, FILE, reads=("path",))


def load(config: DatasetConfig) -> Table:
    X, target = dataset_files.parse_keel(dataset_files.read(FILE, config.path), labels=("-1.0", "1.0"))
    return Table(
        X,
        target,
        ("At1", "At2"),
        "binary",
        FILE.sha256,
        classes=("-1", "+1"),
        paper_scaling=partial(scaling.minmax, top=8.0),
    )
