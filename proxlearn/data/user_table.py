"""The loader of a user's table in a .csv or .npz file: ``dataset=csv dataset.path=my.csv dataset.target=label``.

A table that cannot be used for training raises an InputError with a remedy. No row or column is dropped, filled in or
encoded silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import csv_file, npz_file
from proxlearn.data.dataset_files import digest
from proxlearn.data.labels import infer_target, keep_spelling
from proxlearn.data.new_rows import check_finite
from proxlearn.data.table import DatasetInfo, Table
from proxlearn.errors import InputError
from proxlearn.files.user_paths import unreadable_as_input_error, user_path
from proxlearn.terminal.notice import notice

INFO = DatasetInfo(
    None,
    None,
    None,
    "your own table: dataset.path=FILE dataset.target=COLUMN",
    "yours",
    reads=("path", "target", "task"),
)
LARGE_FILE = 50_000_000
"""Size in bytes above which a notice announces that the file is being read."""
MAX_LISTED_NAMES = 5
"""Maximum number of column names in one message; further columns are only counted."""


def load(config: DatasetConfig) -> Table:
    if config.path is None:
        target = " and dataset.target=COLUMN" if config.target is None else ""
        raise InputError("dataset=csv needs a file", f"give dataset.path=FILE{target}")
    path = user_path("dataset.path", config.path)
    content = _read_file(path)
    reader = npz_file if path.suffix.lower() == ".npz" else csv_file
    X, values, columns, target = reader.read_table(path, content, config.target)
    _check_features(X, columns, path)
    if reader is csv_file:
        values = keep_spelling(values, lambda: csv_file.read_target_texts(path, content, target), config.task)
    encoding = infer_target(values, target, config.task)
    if config.task is None:
        notice(f"{encoding.description}; set dataset.task=... to change this")
    return Table(
        X,
        encoding.target,
        tuple(columns),
        encoding.task,
        digest(content),
        classes=encoding.classes,
        target_column=target,
    )


def _read_file(path: Path) -> bytes:
    with unreadable_as_input_error("dataset.path", path, ".csv or .npz"):
        if path.stat().st_size > LARGE_FILE:
            notice(f"reading {path} ({path.stat().st_size / 1e6:.0f} MB)")
        content = path.read_bytes()
    if not content.strip():
        raise InputError(f"{path} is empty", "give a header line and at least two rows")
    return content


def _check_features(X: np.ndarray, columns: Sequence[str], path: Path) -> None:
    """Raise InputError if there are too few rows or columns, or if a column is constant or not finite."""
    if len(X) < 2:
        raise InputError(
            f"{path} has fewer than two rows of data", "give at least one row for training and one for testing"
        )
    if not columns:
        raise InputError(f"{path} has no column besides the target", "add at least one feature column")
    check_finite(X, columns)
    constant = [columns[i] for i in np.flatnonzero(X.max(axis=0) == X.min(axis=0)).tolist()]
    if constant:
        names = ", ".join(f"`{name}`" for name in constant[:MAX_LISTED_NAMES])
        more = f" and {len(constant) - MAX_LISTED_NAMES} more" if len(constant) > MAX_LISTED_NAMES else ""
        noun, verb, pronoun = ("column", "has", "it") if len(constant) == 1 else ("columns", "have", "them")
        problem = f"{noun} {names}{more} {verb} the same value in every row"
        raise InputError(problem, f"delete {pronoun}, because a constant column carries no information")
