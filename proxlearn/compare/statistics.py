"""Means over several splits, and their confidence intervals.

The splits of one table overlap, so the test results are not independent, and Student's interval is too narrow to be
valid for new rows of the same kind. Nadeau and Bengio (2003) replace s^2/k, the estimated variance of the mean of k
splits, by (1/k + n_test/n_train) s^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanSd:
    """A mean and a standard deviation; the latter is NaN for a single value."""

    mean: float
    sd: float = math.nan

    def text(self, digits: int) -> str:
        """Return "mean ± standard deviation" as a string with ``digits`` decimal places.

        Three significant digits are used instead if ``digits`` is positive and the magnitude of the mean is at least
        10^4. The text is empty if the mean is NaN.
        """
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
    """A mean and the half-widths of its 95 % confidence intervals, which are NaN for fewer than two values."""

    mean: float
    student: float
    """Half-width of Student's interval, which is valid for independent values."""
    corrected: float
    """Half-width of the interval that is corrected for overlapping splits."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the corrected interval excludes 0."""
        return abs(self.mean) > self.corrected

    def text(self, digits: int) -> str:
        """Return the mean and both half-widths as a string, with a star if the corrected interval excludes 0."""
        mean = without_negative_zero(self.mean, digits)
        if math.isnan(self.student):
            return "" if math.isnan(mean) else f"{mean:+.{digits}f}"
        star = " *" if self.excludes_zero else ""
        return f"{mean:+.{digits}f} ± {self.student:.{digits}f} (± {self.corrected:.{digits}f}){star}"


def interval(values: Sequence[float], test_share: float = 0.0, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of ``values`` with intervals of the given confidence; ``test_share`` is n_test / n_train."""
    k, summary = len(values), summarise(values)
    if k < 2:
        return Interval(summary.mean, math.nan, math.nan)
    from scipy.stats import t

    quantile = float(t.ppf((1 + confidence) / 2, k - 1))
    return Interval(
        summary.mean, quantile * summary.sd * math.sqrt(1 / k), quantile * summary.sd * math.sqrt(1 / k + test_share)
    )


def paired(first: Mapping[int, float], second: Mapping[int, float], test_share: float) -> Interval:
    """Return the mean of ``first`` minus ``second`` over their common splits, with its confidence intervals."""
    return interval([first[split] - second[split] for split in sorted(first.keys() & second.keys())], test_share)
