"""Scalings: affine maps column by column, fitted on rows that the caller chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Scaler:
    """x -> (x - shift) * factor, column by column."""

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
"""Rounding error of a constant column's mean that is left as it is: nothing is learnt from it."""

ScalerFit = Callable[[np.ndarray], Scaler]
"""From the rows that may be looked at to the map."""


def none(X: np.ndarray) -> Scaler:
    """Features as they are."""
    return constant_factor(X, 1.0)


def constant_factor(X: np.ndarray, factor: float) -> Scaler:
    """Every feature times one number."""
    return Scaler(np.zeros(X.shape[1]), np.full(X.shape[1], factor))


def standard(X: np.ndarray) -> Scaler:
    """Mean 0, standard deviation 1."""
    constant = X.max(axis=0) == X.min(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, width = X.mean(axis=0), X.std(axis=0)
        # Squares of 1e200 overflow, those of 1e-200 vanish: such columns in units of their largest number.
        beyond = ~np.isfinite(mean) | ~np.isfinite(width) | ((width == 0) & ~constant)
        unit = np.where(beyond, np.abs(X).max(axis=0), 1.0)
        if beyond.any():
            relative = X / unit
            mean = np.where(beyond, unit * relative.mean(axis=0), mean)
            width = np.where(beyond, unit * relative.std(axis=0), width)
    # A constant column's mean may be rounded; of 1e200 that alone is 1e184.
    mean = np.where(constant & (np.abs(mean - X[0]) > MAX_CONSTANT_ERROR), X[0], mean)
    return Scaler(mean, _inverse(width, X))


def minmax(X: np.ndarray, top: float = 1.0) -> Scaler:
    """Each column onto [0, top]."""
    low = X.min(axis=0)
    return Scaler(low, top * _inverse(X.max(axis=0) - low, X))


def symmetric(X: np.ndarray) -> Scaler:
    """Each column onto [-1, 1]."""
    twice = minmax(X, top=2.0)
    return Scaler(twice.shift + 1 / twice.factor, twice.factor)


def max_abs(X: np.ndarray) -> Scaler:
    """Each column divided by its largest magnitude."""
    return Scaler(np.zeros(X.shape[1]), _inverse(np.abs(X).max(axis=0), X))


def _inverse(width: np.ndarray, X: np.ndarray) -> np.ndarray:
    """1 / width; 1 for a column that is constant on these rows (its width may be rounding error, not zero)."""
    constant = (X.max(axis=0) == X.min(axis=0)) | (width == 0)
    with np.errstate(over="ignore"):
        inverse: np.ndarray = np.where(constant, 1.0, 1.0 / np.where(constant, 1.0, width))
    return inverse


FITS: dict[str, ScalerFit] = {"none": none, "standard": standard, "minmax": minmax, "max": max_abs}
"""Every scaling by its name in a config; ``paper`` is the dataset's own."""
