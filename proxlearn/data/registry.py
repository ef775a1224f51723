"""Every dataset by name. A new one: a module with ``load(config)``, a file in configs/dataset/, a line here."""

from __future__ import annotations

import importlib

from proxlearn.data.table import Table
from proxlearn.errors import InputError, did_you_mean
from proxlearn.schema import DatasetConfig

LOADERS = {
    "wdbc": "proxlearn.data.wdbc",
    "sine": "proxlearn.data.sine",
}


def load(config: DatasetConfig) -> Table:
    """The table that ``dataset.name`` names."""
    if config.name not in LOADERS:
        raise InputError(f"no loader for dataset `{config.name}`", did_you_mean(config.name, LOADERS))
    table: Table = importlib.import_module(LOADERS[config.name]).load(config)
    return table
