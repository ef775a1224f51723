"""Checks for numbers that overflow in the arithmetic: an error names their column before training starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError

MAX_MAGNITUDE = 1e300
"""Largest magnitude of a number in a table: the difference of two such numbers is still finite."""
OTHER_UNIT = "give the column in another unit"


def max_scaled_magnitude(*dtypes: str | None) -> float:
    """Return the largest scaled magnitude whose square is finite in the widest of these precisions."""
    return max(float(np.sqrt(np.finfo(dtype).max)) for dtype in dtypes if dtype is not None)


def check_scaler(scaler: Scaler, names: Sequence[str]) -> None:
    """Refuse a column whose numbers are too close to each other to be scaled."""
    bad = np.flatnonzero(~np.isfinite(scaler.factor) | ~np.isfinite(scaler.shift) | (scaler.factor == 0))
    if len(bad):
        raise InputError(f"{names[bad[0]]} cannot be scaled: its numbers are too close to each other", OTHER_UNIT)


def check_scaled(
    X: np.ndarray,
    scaled: np.ndarray,
    names: Sequence[str],
    limit: float,
    row_name: Callable[[int], str],
    remedy: str,
) -> None:
    """Refuse numbers that are too large before or after scaling."""
    for numbers, largest, suffix in ((X, MAX_MAGNITUDE, ""), (scaled, limit, " once it is scaled")):
        bad = np.argwhere(~(np.abs(numbers) <= largest))
        if len(bad):
            row, column = (int(i) for i in bad[0])
            problem = f"{names[column]} holds {X[row, column]:.6g} in {row_name(row)}, which is too large{suffix}"
            raise InputError(problem, OTHER_UNIT if not suffix else remedy)
