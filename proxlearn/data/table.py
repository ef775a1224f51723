"""A dataset as every loader returns it, before any split or scaling, and what is known of it beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proxlearn.core.options import Task
from proxlearn.data.dataset_files import DataFile
from proxlearn.data.scaling import ScalerFit


@dataclass(frozen=True)
class Table:
    """Rows in the source's order."""

    X: np.ndarray
    """Features, rows x n_x, float64."""
    target: np.ndarray
    """Class indices (int64) or real targets (float64), one a row."""
    columns: tuple[str, ...]
    task: Task
    sha256: str
    """Of the numbers themselves (or of the file they were read from): what the run folder records."""
    classes: tuple[str, ...] = ()
    train_rows: int | None = None
    """Where the source itself says which rows are for training: the first so many."""
    paper_scaling: ScalerFit | None = None
    """What the paper did to the features of each part; None where the paper has no such data."""
    target_column: str | None = None
    """What the target is called, where it is a column of the user's."""
    image: tuple[int, int] | None = None
    """Height and width, where a row of features is an image."""


@dataclass(frozen=True)
class DatasetInfo:
    """What ``proxlearn data`` tells of a dataset without loading it. Each loader's module has one, as ``ABOUT``."""

    rows: int | None
    features: int | None
    classes: int | None
    """None for a real target, and for a table of which nothing is known before it is read."""
    source: str
    licence: str
    file: DataFile | None = None
    """The file it is read from; None where it is computed, or comes with an installed package."""
    reads: tuple[str, ...] = ()
    """Which of dataset.path, .target, .task and .points the loader looks at: the others are refused."""
