"""A dataset as every loader returns it, before any split or scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Task = Literal["binary", "regression"]


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
