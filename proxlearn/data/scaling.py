"""Scalings of features (affine maps, one per column), and checks that no number is too large for computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from proxlearn.errors import InputError


@dataclass(frozen=True, eq=False)
class Scaler:
    """The affine map x -> (x - shift) * factor, with one shift and one factor per column."""

    shift: np.ndarray
    factor: np.ndarray

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Scaler)
            and np.array_equal(self.shift, other.shift)
            and np.array_equal(self.factor, other.factor)
        )

    def __call__(self, X: np.ndarray) -> np.ndarray:
        scaled: np.ndarray = (X - self.shift) * self.factor
        return scaled


MAX_CONSTANT_ERROR = 1e-3
"""Largest rounding error that is accepted in the mean of a constant column; a larger error is corrected."""

ScalerFit = Callable[[np.ndarray], Scaler]
"""A function that fits a scaler to rows."""


def none(X: np.ndarray) -> Scaler:
    """Return a scaler that leaves the features unchanged."""
    return constant_factor(X, 1.0)


def constant_factor(X: np.ndarray, factor: float) -> Scaler:
    """Return a scaler that multiplies every feature by ``factor``."""
    return Scaler(np.zeros(X.shape[1]), np.full(X.shape[1], factor))


def standard(X: np.ndarray, weights: np.ndarray | None = None) -> Scaler:
    """Return a scaler that maps each column to mean 0 and standard deviation 1, with optional weights per row."""
    constant = X.max(axis=0) == X.min(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, width = _mean_and_deviation(X, weights)
        # Squares of 1e200 overflow and squares of 1e-200 underflow, so these columns are divided by their maximum.
        extreme = ~np.isfinite(mean) | ~np.isfinite(width) | ((width == 0) & ~constant)
        unit = np.where(extreme, np.abs(X).max(axis=0), 1.0)
        if extreme.any():
            relative_mean, relative_width = _mean_and_deviation(X / unit, weights)
            mean = np.where(extreme, unit * relative_mean, mean)
            width = np.where(extreme, unit * relative_width, width)
    # The mean of a constant column may be rounded; for a column of 1e200 the rounding error alone is 1e184.
    mean = np.where(constant & (np.abs(mean - X[0]) > MAX_CONSTANT_ERROR), X[0], mean)
    return Scaler(mean, _inverse(width, X))


def _mean_and_deviation(X: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each column, with optional weights per row."""
    if weights is None:
        return X.mean(axis=0), X.std(axis=0)
    mean = np.average(X, axis=0, weights=weights)
    return mean, np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))


def minmax(X: np.ndarray, top: float = 1.0) -> Scaler:
    """Return a scaler that maps the range of each column onto [0, top]."""
    low = X.min(axis=0)
    return Scaler(low, top * _inverse(X.max(axis=0) - low, X))


def symmetric(X: np.ndarray) -> Scaler:
    """Return a scaler that maps the range of each column onto [-1, 1]."""
    scaler = minmax(X, top=2.0)
    return Scaler(scaler.shift + 1 / scaler.factor, scaler.factor)


def max_abs(X: np.ndarray) -> Scaler:
    """Return a scaler that divides each column by its largest absolute value."""
    return Scaler(np.zeros(X.shape[1]), _inverse(np.abs(X).max(axis=0), X))


def _inverse(width: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return 1 / width for each column, or 1 if all values of the column in X are equal or its width is 0.

    Equality is tested exactly, because rounding may give a constant column a width other than 0.
    """
    constant = (X.max(axis=0) == X.min(axis=0)) | (width == 0)
    with np.errstate(over="ignore"):
        inverse: np.ndarray = np.where(constant, 1.0, 1.0 / np.where(constant, 1.0, width))
    return inverse


FITS: dict[str, ScalerFit] = {"none": none, "standard": standard, "minmax": minmax, "max": max_abs}
"""Functions that fit a scaler, by their names in a config; the function for ``paper`` depends on the dataset."""


MAX_MAGNITUDE = 1e300
"""Largest accepted magnitude of a number in a table; differences of accepted numbers are finite."""
OTHER_UNIT = "convert the column to another unit"


def max_scaled_magnitude(*dtypes: str | None) -> float:
    """Return the largest magnitude of a scaled number whose square is finite in the widest of the precisions.

    An entry of ``dtypes`` that is None is ignored.
    """
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
    """Raise InputError if a number in ``X`` is too large, or if the magnitude of its scaled value exceeds ``limit``.

    ``row_name`` returns the name of the row with a given index; ``remedy`` is used if a scaled value is too large.
    """
    for numbers, largest, suffix in ((X, MAX_MAGNITUDE, ""), (scaled, limit, " after scaling")):
        bad = np.argwhere(~(np.abs(numbers) <= largest))
        if len(bad):
            row, column = (int(i) for i in bad[0])
            problem = f"the value {X[row, column]:.6g} in {row_name(row)} of {names[column]} is too large{suffix}"
            raise InputError(problem, OTHER_UNIT if not suffix else remedy)
