"""A person's own table: ``dataset=csv dataset.path=my.csv dataset.target=label``, or an .npz file.

Whatever cannot be learnt from as it is gets refused with the column's name and the remedy; nothing is dropped, filled
in or encoded behind the user's back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import csv_file, npz_file
from proxlearn.data.dataset_files import digest
from proxlearn.data.labels import infer_target, keep_spelling
from proxlearn.data.row_reader import check_finite
from proxlearn.data.table import DatasetInfo, Table
from proxlearn.errors import InputError
from proxlearn.files.user_paths import user_path
from proxlearn.terminal.notice import notice

ABOUT = DatasetInfo(
    None,
    None,
    None,
    "your own table: dataset.path=FILE dataset.target=COLUMN",
    "yours",
    reads=("path", "target", "task"),
)
LARGE_FILE = 50_000_000
"""Bytes from which reading takes seconds, and is announced."""
MAX_LISTED_NAMES = 5
"""Names in one message; the rest is counted."""


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
    found = infer_target(values, target, config.task)
    if config.task is None:
        notice(f"{found.description}; dataset.task=... overrides this guess")
    return Table(
        X, found.target, tuple(columns), found.task, digest(content), classes=found.classes, target_column=target
    )


def _read_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGE_FILE:
            notice(f"reading {path} ({path.stat().st_size / 1e6:.0f} MB)")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            f"dataset.path: no file {path}", f"relative paths start where the command did: {Path.cwd()}"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "name a readable .csv or .npz file") from error
    if not content.strip():
        raise InputError(f"{path} is empty", "give a header line and at least two rows")
    return content


def _check_features(X: np.ndarray, columns: Sequence[str], path: Path) -> None:
    """Numbers that a neuron can use: finite, and not the same in every row."""
    if len(X) < 2:
        raise InputError(f"{path} has less than two rows of data", "give one to train on and one to test on, at least")
    if not columns:
        raise InputError(f"{path} has no column besides the target", "add the columns to predict from")
    check_finite(X, columns)
    constant = [columns[i] for i in np.flatnonzero(X.max(axis=0) == X.min(axis=0)).tolist()]
    if constant:
        names = ", ".join(f"`{name}`" for name in constant[:MAX_LISTED_NAMES])
        more = f" and {len(constant) - MAX_LISTED_NAMES} more" if len(constant) > MAX_LISTED_NAMES else ""
        be = "is" if len(constant) == 1 else "are"
        raise InputError(
            f"column {names}{more} {be} the same in every row", "delete what is constant: nothing is learnt from it"
        )
