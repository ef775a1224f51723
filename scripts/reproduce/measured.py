"""A figure over several runs, and when it is said to agree with the paper's."""

from __future__ import annotations

import math

import numpy as np

from proxlearn.compare.statistics import Measured, over
from proxlearn.data.prepare import Prepared

__all__ = ["Measured", "majority_accuracy", "majority_of_counts", "over", "verdict"]


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
    # One run says nothing of its own spread.
    alone = " (one run)" if math.isnan(ours.sd) else ""
    return f"differs by {difference:+.{digits}f}{alone}"


def majority_of_counts(train: np.ndarray, test: np.ndarray) -> float:
    """The test accuracy of always answering the class that most training rows have, from the rows of each class."""
    return float(test[train.argmax()] / test.sum())


def majority_accuracy(prepared: Prepared) -> float | None:
    """The same of a split; None for a real target."""
    parts = [prepared.train.labels, prepared.test.labels]
    if parts[0] is None or parts[1] is None:
        return None
    counts = [
        np.bincount(labels.cpu().numpy(), minlength=len(prepared.table.classes))
        for labels in parts
        if labels is not None
    ]
    return majority_of_counts(*counts)
