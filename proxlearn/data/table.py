"""The table that every loader returns, before splitting and scaling, and the description of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proxlearn.core.options import Task
from proxlearn.data.dataset_files import DataFile
from proxlearn.data.scaling import ScalerFit


@dataclass(frozen=True)
class Table:
    """A dataset as its loader returns it, with the rows in the order of the source."""

    X: np.ndarray
    """Features, rows x features, float64; in a user's table, the columns of numbers, with NaN for missing values."""
    target: np.ndarray
    """Class indices (int64) or real targets (float64), one per row; for several real targets, rows x targets."""
    columns: tuple[str, ...]
    """Names of the columns of ``X``."""
    task: Task
    sha256: str
    """Checksum of the data, or of the file from which they were read; it is recorded in the run folder."""
    classes: tuple[str, ...] = ()
    train_rows: int | None = None
    """Number of leading rows that the source reserves for training; if None, dataset.train_fraction determines it."""
    paper_scaling: ScalerFit | None = None
    """Function that fits the paper's feature scaling to the rows of one part; None if the paper does not use the
    dataset."""
    target_column: str | None = None
    """Name of the target column in a user's table; None for other datasets and for several targets."""
    target_columns: tuple[str, ...] = ()
    """Names of all target columns in a user's table."""
    texts: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Columns of categories in a user's table, by name, as strings; they are encoded as features after the split."""
    missing: str | None = None
    """Treatment of missing values in a user's table (see ``FeatureEncoder.missing``)."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """Settings for reading a user's table, with the keys decimal, header, skip_lines and missing_values."""
    row_numbers: np.ndarray | None = None
    """Numbers of the rows in the user's file, counted from 1; they have gaps if rows are left out. None for other
    datasets."""
    ignored: tuple[str, ...] = ()
    """Columns of a user's table that are not features: dropped columns and constant columns."""
    image: tuple[int, int] | None = None
    """Height and width of the image whose pixels are the features of a row; None for other data."""


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a dataset, which ``proxlearn data`` shows without loading the data.

    Each loader module defines its description as ``INFO``.
    """

    rows: int | None
    features: int | None
    classes: int | None
    """Number of classes; None for a real target and for a user's table."""
    source: str
    licence: str
    file: DataFile | None = None
    """File of the dataset; None if the data are computed or are part of an installed package."""
    reads: tuple[str, ...] = ()
    """Keys in ``registry.OPTIONAL_KEYS`` that the loader reads; setting any other key of that tuple is an error."""
