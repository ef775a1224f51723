"""From a table to two parts: the split, the scaling, and the numbers that prediction needs later."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from proxlearn.core.problem import Samples
from proxlearn.data.table import Table
from proxlearn.errors import InputError
from proxlearn.schema import DatasetConfig


@dataclass(frozen=True)
class Scaler:
    """x -> (x - shift) * factor, column by column."""

    shift: np.ndarray
    factor: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        scaled: np.ndarray = (X - self.shift) * self.factor
        return scaled


@dataclass(frozen=True)
class Prepared:
    """The two parts of a dataset, ready for a problem; float64 on the CPU."""

    train: Samples
    test: Samples
    scaler: Scaler
    table: Table


def split(table: Table, config: DatasetConfig, split_seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the training and of the test part."""
    rows = len(table.X)
    order = np.arange(rows)
    if config.split == "shuffled":
        order = np.random.default_rng(split_seed).permutation(rows)
    train_rows = table.train_rows or math.ceil(config.train_fraction * rows)
    if not 0 < train_rows < rows:
        raise InputError(
            f"dataset.train_fraction={config.train_fraction:g} of {rows} rows leaves a part empty",
            "choose another dataset.train_fraction",
        )
    return order[:train_rows], order[train_rows:]


def prepare(table: Table, config: DatasetConfig, split_seed: int) -> Prepared:
    """Split, then scale with figures of the training part."""
    train_rows, test_rows = split(table, config, split_seed)
    n_x = table.X.shape[1]
    scaler = Scaler(np.zeros(n_x), np.ones(n_x))

    def samples(rows: np.ndarray) -> Samples:
        X = torch.from_numpy(scaler(table.X[rows]))
        target = torch.from_numpy(table.target[rows])
        if table.task == "binary":
            return Samples(X, 2.0 * target.double() - 1.0, labels=target)
        return Samples(X, target.double())

    return Prepared(samples(train_rows), samples(test_rows), scaler, table)
