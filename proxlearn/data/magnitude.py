"""Check, before training starts, that no number of a table is so large that computations overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError

MAX_MAGNITUDE = 1e300
"""Largest accepted magnitude of a number in a table; differences of accepted numbers are finite."""
OTHER_UNIT = "convert the column to another unit"


def max_scaled_magnitude(*dtypes: str | None) -> float:
    """Return the largest magnitude of a scaled number whose square is finite in the widest of the precisions."""
    return max(float(np.sqrt(np.finfo(dtype).max)) for dtype in dtypes if dtype is not None)


def check_scaler(scaler: Scaler, names: Sequence[str]) -> None:
    """Raise InputError if the numbers of a column are too close to each other to be scaled."""
    bad = np.flatnonzero(~np.isfinite(scaler.factor) | ~np.isfinite(scaler.shift) | (scaler.factor == 0))
    if len(bad):
        raise InputError(f"{names[bad[0]]} cannot be scaled: its values are too close together", OTHER_UNIT)


def check_scaled(
    X: np.ndarray,
    scaled: np.ndarray,
    names: Sequence[str],
    limit: float,
    row_name: Callable[[int], str],
    remedy: str,
) -> None:
    """Raise InputError if a number in ``X`` is too large, or if its scaled value exceeds ``limit``."""
    for numbers, largest, suffix in ((X, MAX_MAGNITUDE, ""), (scaled, limit, " after scaling")):
        bad = np.argwhere(~(np.abs(numbers) <= largest))
        if len(bad):
            row, column = (int(i) for i in bad[0])
            problem = f"{names[column]} holds {X[row, column]:.6g} in {row_name(row)}, which is too large{suffix}"
            raise InputError(problem, OTHER_UNIT if not suffix else remedy)
