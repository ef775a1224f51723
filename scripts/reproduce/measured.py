"""A figure over several runs, and when it is said to agree with the paper's."""

from __future__ import annotations

import math

from proxlearn.compare.statistics import MeanSd, summarise
from proxlearn.data.prepare import PreparedData

__all__ = ["MeanSd", "majority_accuracy", "summarise", "verdict"]


def verdict(ours: MeanSd, paper: MeanSd, allowed: float, digits: int, complete: bool) -> str:
    """Agreement: within ``allowed``, or within twice the spread of the two figures together."""
    if not complete or math.isnan(ours.mean):
        return "no verdict: partial"
    difference = ours.mean - paper.mean
    spread = 2 * math.hypot(*(0.0 if math.isnan(each.sd) else each.sd for each in (ours, paper)))
    if abs(difference) <= spread:
        return f"agrees within the spread ({difference:+.{digits}f})"
    if abs(difference) <= allowed:
        return f"agrees within {allowed:.{digits}f} ({difference:+.{digits}f})"
    # One run says nothing of its own spread.
    alone = " (one run)" if math.isnan(ours.sd) else ""
    return f"differs by {difference:+.{digits}f}{alone}"


def majority_accuracy(prepared: PreparedData) -> float | None:
    """The test accuracy of always answering the class that most training rows have; None for a real target."""
    train, test = prepared.train.labels, prepared.test.labels
    if train is None or test is None:
        return None
    return float((test == train.mode().values).double().mean())
