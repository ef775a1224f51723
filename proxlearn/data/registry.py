"""The registry of datasets by name.

A new dataset needs a module with INFO and ``load``, a file in configs/dataset/, and a line in LOADERS. Another package
adds a dataset through an entry point of the group ``proxlearn.datasets``: a module or an object with INFO, ``load`` and
CONFIG. CONFIG contains the values that a file in configs/dataset/ would contain (see config/config_folders.py).
"""

from __future__ import annotations

import importlib
from typing import Any

from proxlearn.config.schema import DatasetConfig
from proxlearn.core.registry import DATASET_GROUP, Registry, plugin_error
from proxlearn.data.table import DatasetInfo, Table
from proxlearn.data.table_problems import SETTINGS
from proxlearn.errors import InputError

LOADERS = {
    "wdbc": "proxlearn.data.wdbc",
    "banana": "proxlearn.data.banana",
    "diabetes": "proxlearn.data.pima_diabetes",
    "twonorm": "proxlearn.data.twonorm",
    "shd": "proxlearn.data.shd",
    "digits": "proxlearn.data.digits",
    "wine": "proxlearn.data.wine",
    "sine": "proxlearn.data.sine",
    "csv": "proxlearn.data.user_table",
}
"""The modules that load the datasets of proxlearn, by the name of the dataset."""
OPTIONAL_KEYS = ("path", "target", "task", "points", *SETTINGS)
"""Keys of the config group ``dataset`` that only some loaders read."""


def _is_loader(part: Any) -> bool:
    return isinstance(getattr(part, "INFO", None), DatasetInfo) and callable(getattr(part, "load", None))


DATASETS: Registry[Any] = Registry(
    "dataset", DATASET_GROUP, LOADERS, "a module or an object with INFO (a DatasetInfo), CONFIG and load", _is_loader
)
"""All datasets by name; a value is the name of a proxlearn module, or the object that an entry point provides."""


def dataset_info(name: str) -> DatasetInfo:
    """Return the description of a dataset, without loading it."""
    info: DatasetInfo = _import_loader(name).INFO
    return info


def load(config: DatasetConfig) -> Table:
    """Load the dataset ``config.name``; raise InputError if the config sets a key that its loader does not read."""
    reads = dataset_info(config.name).reads
    for key in OPTIONAL_KEYS:
        if getattr(config, key) is not None and key not in reads:
            hint = ", or use dataset=csv for your own table" if key in dataset_info("csv").reads else ""
            raise InputError(f"dataset={config.name} does not use dataset.{key}", f"leave it out{hint}")
    table: Table = _import_loader(config.name).load(config)
    if not isinstance(table, Table):
        problem = f"is loaded as {type(table).__name__} instead of a Table"
        raise plugin_error("dataset", DATASET_GROUP, config.name, problem)
    return table


def _import_loader(name: str) -> Any:
    """Return the loader of a dataset: a module or an object with INFO and ``load``."""
    part = DATASETS[name]
    return importlib.import_module(part) if name in LOADERS else part
