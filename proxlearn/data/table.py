"""A dataset as every loader returns it, before splitting and scaling, and its description, which needs no loading."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proxlearn.core.options import Task
from proxlearn.data.dataset_files import DataFile
from proxlearn.data.scaling import ScalerFit


@dataclass(frozen=True)
class Table:
    """The rows of a dataset in the order of its source."""

    X: np.ndarray
    """Features, rows x n_x, float64."""
    target: np.ndarray
    """Class indices (int64) or real targets (float64), one per row."""
    columns: tuple[str, ...]
    task: Task
    sha256: str
    """Digest of the numbers, or of the file that they were read from; recorded in the run folder."""
    classes: tuple[str, ...] = ()
    train_rows: int | None = None
    """Number of leading rows that the source reserves for training; None: dataset.train_fraction decides."""
    paper_scaling: ScalerFit | None = None
    """The paper's scaling of the features of each part; None where the paper does not use the dataset."""
    target_column: str | None = None
    """Name of the target's column in a user's table."""
    image: tuple[int, int] | None = None
    """Height and width, where a row of features is an image."""


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a dataset for ``proxlearn data``, without loading it. Each loader's module has one as ``INFO``."""

    rows: int | None
    features: int | None
    classes: int | None
    """None for a real target, and for a user's table."""
    source: str
    licence: str
    file: DataFile | None = None
    """The file that it is read from; None where it is computed, or part of an installed package."""
    reads: tuple[str, ...] = ()
    """The keys among dataset.path, .target, .task and .points that the loader reads; setting another is an error."""
