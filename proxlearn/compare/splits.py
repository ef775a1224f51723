"""Which rows are trained on: drawn once from a seed, stored with the data's checksum, and shared by all methods.

Random splits are numbered. Beside them there is, for some data, the one split on which the samplers' authors have
trained: what they printed is about those rows.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxlearn.compare.spec import AUTHORS, AUTHORS_SEEDS, Name
from proxlearn.config.schema import DatasetConfig
from proxlearn.data import prepare
from proxlearn.data.dataset_files import digest
from proxlearn.data.table import Table
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_atomically
from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.run.ownership import SPLIT_START, begins_with

FORMAT = "proxlearn-split-1"
TRAIN_FRACTION = 0.8
UNREADABLE = (UnreadableFile, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What reading a JSON file that anybody may have written can raise."""


@dataclass(frozen=True)
class Split:
    """Row numbers of the two parts, in the order in which they are used."""

    train: np.ndarray
    test: np.ndarray

    @property
    def sha256(self) -> str:
        """One word for the rows and their order."""
        return digest(self.train.astype("<i8").tobytes() + b"|" + self.test.astype("<i8").tobytes())


def split_of(folder: Path, table: Table, config: DatasetConfig, name: Name) -> Split:
    """The stored split of this table, or a new one, stored.

    A stored split that does not fit the table is replaced. A file that is no split is refused.
    """
    path = folder / split_path(config, name)
    stored = _stored(path, table, name)
    if stored is not None:
        return stored
    if os.path.lexists(path) and not begins_with(path, SPLIT_START):
        raise InputError(f"{path} is no split that `proxlearn compare` wrote", "move it to another place")
    if name == AUTHORS:
        seed = AUTHORS_SEEDS[config.name]
        order = torch.randperm(len(table.X), generator=torch.Generator().manual_seed(seed)).numpy()
        made = Split(*np.split(order, [_train_rows(len(order), name)]))
    else:
        seed = name
        shuffled = replace(config, split="shuffled", train_fraction=TRAIN_FRACTION)
        made = Split(*prepare.split_rows(table, shuffled, seed))
    values = {"format": FORMAT, "dataset": config.name, "data_sha256": table.sha256, "seed": seed}
    values |= {"train": made.train.tolist(), "test": made.test.tolist()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # On one line: thousands of numbers are for programs.
    write_atomically(path, (json.dumps(values) + "\n").encode())
    return made


def split_path(config: DatasetConfig, name: Name) -> Path:
    """The file of a split, relative to the output folder."""
    return Path("splits", f"{config.name}-{name}.json")


def _train_rows(rows: int, name: Name) -> int:
    """The authors round down."""
    return math.floor(TRAIN_FRACTION * rows) if name == AUTHORS else math.ceil(TRAIN_FRACTION * rows)


def _stored(path: Path, table: Table, name: Name) -> Split | None:
    try:
        values = read_json(path)
        if (values["format"], values["data_sha256"]) != (FORMAT, table.sha256):
            return None
        found = Split(*(_numbers(values[part]) for part in ("train", "test")))
    except UNREADABLE:
        return None
    rows = len(table.X)
    whole = np.array_equal(np.sort(np.concatenate((found.train, found.test))), np.arange(rows))
    return found if whole and len(found.train) == _train_rows(rows, name) else None


def _numbers(values: Any) -> np.ndarray:
    if not isinstance(values, list) or not all(type(each) is int for each in values):
        raise ValueError("row numbers are whole")
    return np.array(values, dtype=np.int64)
