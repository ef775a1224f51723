"""Registry of the datasets by name.

A new dataset needs a module with INFO and ``load``, a file in configs/dataset/, and a line here.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from proxlearn.config.schema import DatasetConfig
from proxlearn.data.table import DatasetInfo, Table
from proxlearn.errors import InputError, did_you_mean

LOADERS = {
    "wdbc": "proxlearn.data.wdbc",
    "banana": "proxlearn.data.banana",
    "diabetes": "proxlearn.data.diabetes",
    "twonorm": "proxlearn.data.twonorm",
    "shd": "proxlearn.data.shd",
    "digits": "proxlearn.data.digits",
    "sine": "proxlearn.data.sine",
    "csv": "proxlearn.data.user_table",
}
OPTIONAL_KEYS = ("path", "target", "task", "points")
"""Keys of the dataset group that only some loaders read."""


def dataset_info(name: str) -> DatasetInfo:
    """Return the description of a dataset, without loading it."""
    info: DatasetInfo = _import_loader(name).INFO
    return info


def load(config: DatasetConfig) -> Table:
    """Load the dataset ``config.name``."""
    reads = dataset_info(config.name).reads
    for key in OPTIONAL_KEYS:
        if getattr(config, key) is not None and key not in reads:
            hint = ", or use dataset=csv for your own table" if key in dataset_info("csv").reads else ""
            raise InputError(f"dataset={config.name} does not read dataset.{key}", f"leave it out{hint}")
    table: Table = _import_loader(config.name).load(config)
    return table


def _import_loader(name: str) -> ModuleType:
    if name not in LOADERS:
        raise InputError(f"no loader for dataset `{name}`", did_you_mean(name, LOADERS))
    return importlib.import_module(LOADERS[name])
