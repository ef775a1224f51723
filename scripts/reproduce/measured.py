"""A figure over several runs, and when it is said to agree with the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measured:
    """Mean and standard deviation (NaN where one run says nothing of it)."""

    mean: float
    sd: float = math.nan

    def text(self, digits: int) -> str:
        """With ``digits`` after the point; what has run away (a risk of 10^6) is told by its size alone."""
        form = ".3g" if digits > 0 and abs(self.mean) >= 1e4 else f".{digits}f"
        spread = "" if math.isnan(self.sd) else f" ± {self.sd:{form}}"
        return "" if math.isnan(self.mean) else f"{self.mean:{form}}{spread}"


def over(values: Iterable[float]) -> Measured:
    found = np.array(list(values), dtype=float)
    if not len(found):
        return Measured(math.nan)
    return Measured(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else math.nan)


def verdict(ours: Measured, paper: Measured, allowed: float, digits: int, complete: bool) -> str:
    """Agreement: within ``allowed``, or within twice the spread of the two figures together."""
    if not complete or math.isnan(ours.mean):
        return "no verdict: partial"
    difference = ours.mean - paper.mean
    spread = 2 * math.hypot(*(0.0 if math.isnan(each.sd) else each.sd for each in (ours, paper)))
    if abs(difference) <= spread:
        return f"agrees within the spread ({difference:+.{digits}f})"
    if abs(difference) <= allowed:
        return f"agrees within {allowed:.{digits}f} ({difference:+.{digits}f})"
    return f"differs by {difference:+.{digits}f}"
