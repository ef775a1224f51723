"""Splits of a dataset into training and test rows; a split is drawn once, stored, and used by all methods.

Random splits are numbered. For some datasets, there is also the split that the authors of the samplers used; the
published results refer to the test rows of this split. All splits are stored in one cache (jobs/result_cache.py), with
the checksum of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from proxlearn.compare.spec import AUTHORS, AUTHORS_SEEDS, SplitName
from proxlearn.config.schema import DatasetConfig
from proxlearn.data import prepare
from proxlearn.data.dataset_files import digest
from proxlearn.data.table import Table
from proxlearn.jobs.result_cache import ResultCache

SPLIT_FORMAT = "proxlearn-split-1"
TRAIN_FRACTION = 0.8


@dataclass(frozen=True)
class Split:
    """The row numbers of the training and test parts, in the order in which the rows are used."""

    train: np.ndarray
    test: np.ndarray

    @property
    def sha256(self) -> str:
        """The sha256 of the row numbers, in their order."""
        return digest(self.train.astype("<i8").tobytes() + b"|" + self.test.astype("<i8").tobytes())


def split_of(cache: ResultCache, table: Table, config: DatasetConfig, name: SplitName) -> Split:
    """Return the stored split of a table; if no valid split is stored, draw a new split and store it."""
    split = stored_split(cache, table, config, name)
    if split is not None:
        return split
    if name == AUTHORS:
        seed = AUTHORS_SEEDS[config.name]
        order = torch.randperm(len(table.X), generator=torch.Generator().manual_seed(seed)).numpy()
        split = Split(*np.split(order, [_train_rows(len(order), name)]))
    else:
        seed = name
        shuffled = replace(config, split="shuffled", train_fraction=TRAIN_FRACTION)
        split = Split(*prepare.split_rows(table, shuffled, seed))
    rows = {"seed": seed, "train": split.train.tolist(), "test": split.test.tolist()}
    cache.put(split_identity(table, config, name), rows)
    return split


def stored_split(cache: ResultCache, table: Table, config: DatasetConfig, name: SplitName) -> Split | None:
    """Return the stored split, or None if no split is stored or the stored split does not match the table."""
    values = cache.get(split_identity(table, config, name))
    if values is None:
        return None
    try:
        split = Split(*(_row_numbers(values[part]) for part in ("train", "test")))
    except (KeyError, ValueError, OverflowError):
        return None
    rows = len(table.X)
    complete = np.array_equal(np.sort(np.concatenate((split.train, split.test))), np.arange(rows))
    return split if complete and len(split.train) == _train_rows(rows, name) else None


def split_identity(table: Table, config: DatasetConfig, name: SplitName) -> dict[str, Any]:
    return {"format": SPLIT_FORMAT, "dataset": config.name, "data_sha256": table.sha256, "split": name}


def _train_rows(rows: int, name: SplitName) -> int:
    """Return the number of training rows, rounded down for the split of the samplers' authors and up otherwise."""
    return math.floor(TRAIN_FRACTION * rows) if name == AUTHORS else math.ceil(TRAIN_FRACTION * rows)


def _row_numbers(values: Any) -> np.ndarray:
    if not isinstance(values, list) or not all(type(number) is int for number in values):
        raise ValueError("row numbers must be whole numbers")
    return np.array(values, dtype=np.int64)
