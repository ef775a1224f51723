"""The loader of the diabetes dataset: the Pima Indians data, used in Table 4 of the paper."""

from __future__ import annotations

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import dataset_files, scaling
from proxlearn.data.table import DatasetInfo, Table

FILE = dataset_files.keel_file("pima.dat", "d15b3fc61a19a5bd814e542dddc3464efa8b5bcfc3930885e43a1ca291842207")
INFO = DatasetInfo(768, 8, 2, dataset_files.KEEL_SOURCE, dataset_files.KEEL_LICENCE, FILE, reads=("path",))
COLUMNS = ("pregnancies", "glucose", "blood_pressure", "skin_thickness", "insulin", "body_mass", "pedigree", "age")


def load(config: DatasetConfig) -> Table:
    X, target = dataset_files.parse_keel(dataset_files.read(FILE, config.path), labels=("negative", "positive"))
    return Table(
        X,
        target,
        COLUMNS,
        "binary",
        FILE.sha256,
        classes=("negative", "positive"),
        paper_scaling=scaling.max_abs,
    )
