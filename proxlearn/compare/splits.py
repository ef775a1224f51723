"""Which rows are trained on: drawn once from a seed, stored with the data's checksum, and shared by all methods."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proxlearn.data import prepare
from proxlearn.data.files import digest
from proxlearn.data.table import Table
from proxlearn.run.files import write_atomically
from proxlearn.schema import DatasetConfig

FORMAT = "proxlearn-split-1"
TRAIN_FRACTION = 0.8
UNREADABLE = (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
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


def split_of(folder: Path, table: Table, config: DatasetConfig, number: int) -> Split:
    """The stored split of this table, or a new one, stored; a file that does not fit the table is replaced."""
    path = folder / "splits" / f"{config.name}-{number}.json"
    stored = _stored(path, table)
    if stored is not None:
        return stored
    shuffled = replace(config, split="shuffled", train_fraction=TRAIN_FRACTION)
    made = Split(*prepare.split(table, shuffled, number))
    values = {"format": FORMAT, "dataset": config.name, "data_sha256": table.sha256, "seed": number}
    values |= {"train": made.train.tolist(), "test": made.test.tolist()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # On one line: thousands of numbers are for programs.
    write_atomically(path, (json.dumps(values) + "\n").encode())
    return made


def _stored(path: Path, table: Table) -> Split | None:
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
        if (values["format"], values["data_sha256"]) != (FORMAT, table.sha256):
            return None
        found = Split(*(_numbers(values[part]) for part in ("train", "test")))
    except UNREADABLE:
        return None
    rows = len(table.X)
    whole = np.array_equal(np.sort(np.concatenate((found.train, found.test))), np.arange(rows))
    return found if whole and len(found.train) == math.ceil(TRAIN_FRACTION * rows) else None


def _numbers(values: Any) -> np.ndarray:
    if not isinstance(values, list) or not all(type(each) is int for each in values):
        raise ValueError("row numbers are whole")
    return np.array(values, dtype=np.int64)
