"""Read and validate the CSV tables of a run folder: metrics, accuracy, confusion and points."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from proxlearn.core.tasks import ESTIMATES
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_table
from proxlearn.run import checkpoint_file
from proxlearn.run.metrics import MetricsConversion, metrics_file_version
from proxlearn.views.style import LARGEST_DRAWN

CURVES = tuple(f"{part}_risk_{estimate}" for part in ("train", "test") for estimate in ESTIMATES)
"""Columns of metrics.csv that every run has and that the views draw."""
LARGEST_COUNT = 2**53
"""Upper limit of whole numbers, because larger ones are not exact in float64."""


def read_metrics(path: Path, config: dict[str, Any] | None = None) -> pd.DataFrame:
    """Read metrics.csv; raise UnreadableFile if it has no rows or if a column that is drawn is not numeric.

    If ``config`` is given, rows of version 0.1.0 are converted to their current meaning.
    """

    def convert(content: str) -> str:
        if config is None or metrics_file_version(content.partition("\n")[0]) != 1:
            return content
        return MetricsConversion(config, lambda step: _stored_epsilon(path.parent, step))(content)

    table = read_table(path, convert=convert)
    _require_numbers(path, table, ("step", *CURVES, "ess", "kernel_offdiag"))
    if table.empty or not _are_counts(table["step"]):
        raise UnreadableFile(path, "it has no rows" if table.empty else "a step is not a whole number")
    # The file of a diverging run is not damaged; values that no axis can show become NaN.
    numbers = table.select_dtypes("number").columns
    return table.assign(**{name: table[name].where(table[name].abs() <= LARGEST_DRAWN) for name in numbers})


def read_accuracy(path: Path) -> pd.DataFrame | None:
    """Read accuracy.csv, the final metrics per part and estimate, or return None if it does not exist."""
    table = _read_optional(path)
    if table is not None:
        _require_columns(path, table, ("part", "estimate"))
        _require_numbers(path, table, (name for name in table.columns if name not in ("part", "estimate")))
        table = table.astype({"part": str, "estimate": str})
    return table


def read_confusion(path: Path, classes: int) -> pd.DataFrame | None:
    """Read confusion.csv, or return None if it does not exist.

    Raise UnreadableFile unless the test part has exactly one count per estimate and pair of classes.
    """
    table = _read_optional(path)
    if table is None:
        return None
    _require_columns(path, table, ("part", "estimate"))
    _require_numbers(path, table, ("actual", "predicted", "count"))
    test = table[table["part"] == "test"]
    if not all(_are_counts(table[name]) for name in ("actual", "predicted", "count")):
        raise UnreadableFile(path, "a class or a count is not a whole number")
    cells = set(zip(test["estimate"], test["actual"].astype(int), test["predicted"].astype(int), strict=True))
    expected = {(name, i, j) for name in ESTIMATES for i in range(classes) for j in range(classes)}
    if len(test) != len(cells) or cells != expected:
        raise UnreadableFile(path, f"it does not have one count per pair of the {classes} classes")
    return table.astype({"actual": int, "predicted": int, "count": int})


def read_points(path: Path, model: dict[str, Any]) -> pd.DataFrame | None:
    """Read points.csv, the data points with one or two features, or return None if it is absent or cannot be drawn."""
    table = _read_optional(path)
    if table is None:
        return None
    names = (*(f"x{i}" for i in range(len(model["columns"]))), "target")
    _require_columns(path, table, ("part",))
    _require_numbers(path, table, names)
    values = table[list(names)].to_numpy(float)
    if table.empty or not np.isfinite(values).all():
        raise UnreadableFile(path, "a point is not finite" if len(table) else "it has no rows")
    if (np.abs(values) > LARGEST_DRAWN).any():
        # Training accepts and scales such numbers, but no axis can show them.
        return None
    if model["classes"] and not table["target"].isin(range(len(model["classes"]))).all():
        raise UnreadableFile(path, "a target is not one of the classes")
    return table.astype({"part": str})


def _stored_epsilon(folder: Path, step: int) -> float | None:
    """Return the epsilon stored in the checkpoint of ``step``, or None if there is none."""
    path = checkpoint_file.checkpoint_path(folder / "checkpoints", step)
    try:
        epsilon = checkpoint_file.read_checkpoint_file(path).state.get("epsilon")
    except checkpoint_file.InvalidCheckpoint:
        return None
    return epsilon if isinstance(epsilon, float) else None


def _read_optional(path: Path) -> pd.DataFrame | None:
    try:
        return read_table(path)
    except AbsentFile:
        return None


def _require_columns(path: Path, table: pd.DataFrame, names: Iterable[str]) -> None:
    for name in names:
        if name not in table:
            raise UnreadableFile(path, f"it has no column `{name}`")


def _require_numbers(path: Path, table: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise UnreadableFile unless the columns exist and contain only numbers and empty cells."""
    for name in names:
        _require_columns(path, table, (name,))
        if table[name].dtype.kind not in "iufb":
            raise UnreadableFile(path, f"column `{name}` has a cell that is not a number")


def _are_counts(values: pd.Series) -> bool:
    """Return whether all values are non-negative integers below LARGEST_COUNT."""
    numbers = values.to_numpy(float)
    in_range = np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers < LARGEST_COUNT).all()
    return bool(in_range) and bool((numbers == np.floor(numbers)).all())
