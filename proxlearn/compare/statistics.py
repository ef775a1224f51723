"""Figures over several splits, and how far their mean may be off.

Splits of one table overlap, so its test results are not independent, and Student's interval over them is too narrow as
a statement on other rows of the same kind. Nadeau and Bengio (2003) put (1/k + n_test/n_train) s^2 in the place of
s^2/k.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanSd:
    """Mean and standard deviation (NaN where one run says nothing of it)."""

    mean: float
    sd: float = math.nan

    def text(self, digits: int) -> str:
        """With ``digits`` after the point; what has run away (a risk of 10^6) is told by its size alone."""
        form = ".3g" if digits > 0 and abs(self.mean) >= 1e4 else f".{digits}f"
        spread = "" if math.isnan(self.sd) else f" ± {self.sd:{form}}"
        return "" if math.isnan(self.mean) else f"{self.mean:{form}}{spread}"


def summarise(values: Iterable[float]) -> MeanSd:
    found = np.array(list(values), dtype=float)
    if not len(found):
        return MeanSd(math.nan)
    return MeanSd(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else math.nan)


@dataclass(frozen=True)
class Interval:
    """A mean and the half-widths of its 95 % intervals, NaN where there are less than two values."""

    mean: float
    student: float
    """As if the values were independent."""
    corrected: float
    """For splits that overlap."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the corrected interval leaves 0 out."""
        return abs(self.mean) > self.corrected

    def text(self, digits: int) -> str:
        """Mean ± Student's half-width (± the corrected one), with a star where the corrected interval leaves 0 out."""
        if math.isnan(self.student):
            return "" if math.isnan(self.mean) else f"{self.mean:+.{digits}f}"
        star = " *" if self.excludes_zero else ""
        return f"{self.mean:+.{digits}f} ± {self.student:.{digits}f} (± {self.corrected:.{digits}f}){star}"


def interval(values: Sequence[float], test_share: float = 0.0) -> Interval:
    """Of the mean of ``values``; ``test_share`` is the number of test rows over that of training rows."""
    k, found = len(values), summarise(values)
    if k < 2:
        return Interval(found.mean, math.nan, math.nan)
    from scipy.stats import t

    quantile = float(t.ppf((1 + CONFIDENCE) / 2, k - 1))
    return Interval(
        found.mean, quantile * found.sd * math.sqrt(1 / k), quantile * found.sd * math.sqrt(1 / k + test_share)
    )


def paired(first: Mapping[int, float], second: Mapping[int, float], test_share: float) -> Interval:
    """The first minus the second, on the splits that both have."""
    return interval([first[split] - second[split] for split in sorted(first.keys() & second.keys())], test_share)
