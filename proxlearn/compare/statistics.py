"""Figures over several splits, with confidence intervals of their means.

Splits of one table overlap, so the test results are not independent, and Student's interval over them is too narrow for
other rows of the same kind. Nadeau and Bengio (2003) replace s^2/k by (1/k + n_test/n_train) s^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanSd:
    """Mean and standard deviation; NaN for the standard deviation of a single value."""

    mean: float
    sd: float = math.nan

    def text(self, digits: int) -> str:
        """Format with ``digits`` decimal places; a large number (a risk of 10^6) with three significant digits."""
        form = ".3g" if digits > 0 and abs(self.mean) >= 1e4 else f".{digits}f"
        spread = "" if math.isnan(self.sd) else f" ± {self.sd:{form}}"
        return "" if math.isnan(self.mean) else f"{without_negative_zero(self.mean, digits):{form}}{spread}"


def without_negative_zero(value: float, digits: int) -> float:
    """Return the value, or 0 if it would be printed as -0.00 with ``digits`` decimal places."""
    return 0.0 if round(value, digits) == 0 else value


def summarise(values: Iterable[float]) -> MeanSd:
    numbers = np.array(list(values), dtype=float)
    if not len(numbers):
        return MeanSd(math.nan)
    return MeanSd(float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else math.nan)


@dataclass(frozen=True)
class Interval:
    """A mean and the half-widths of its 95 % intervals; NaN for fewer than two values."""

    mean: float
    student: float
    """Half-width for independent values."""
    corrected: float
    """Half-width for splits that overlap."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the corrected interval does not contain 0."""
        return abs(self.mean) > self.corrected

    def text(self, digits: int) -> str:
        """Return mean ± Student's half-width (± the corrected one), with a star if the latter interval excludes 0."""
        mean = without_negative_zero(self.mean, digits)
        if math.isnan(self.student):
            return "" if math.isnan(mean) else f"{mean:+.{digits}f}"
        star = " *" if self.excludes_zero else ""
        return f"{mean:+.{digits}f} ± {self.student:.{digits}f} (± {self.corrected:.{digits}f}){star}"


def interval(values: Sequence[float], test_share: float = 0.0) -> Interval:
    """Return the intervals of the mean of ``values``; ``test_share`` is the ratio of test to training rows."""
    k, summary = len(values), summarise(values)
    if k < 2:
        return Interval(summary.mean, math.nan, math.nan)
    from scipy.stats import t

    quantile = float(t.ppf((1 + CONFIDENCE) / 2, k - 1))
    return Interval(
        summary.mean, quantile * summary.sd * math.sqrt(1 / k), quantile * summary.sd * math.sqrt(1 / k + test_share)
    )


def paired(first: Mapping[int, float], second: Mapping[int, float], test_share: float) -> Interval:
    """Return the intervals of the mean of first minus second, over the splits that both have."""
    return interval([first[split] - second[split] for split in sorted(first.keys() & second.keys())], test_share)
