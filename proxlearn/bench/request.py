"""The request of a `proxlearn bench` command: the parts that are measured, and their extent.

This module does not import torch, so that the command checks its input before the slow import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PARTS = ("special", "whole", "growth", "company")
"""The parts of the bench in the order in which they are measured. The special clouds come first, because their records
contain the peak memory of the process so far."""
DEFAULT_PARTS = frozenset({"whole", "special"})
EXPERIMENTS = ("wdbc", "diabetes", "banana", "twonorm", "shd", "sine")
"""The datasets of the paper's experiments; their configs set the hyperparameters and the number of steps."""


@dataclass(frozen=True)
class BenchRequest:
    """The parts of the bench that are measured, and their extent."""

    parts: frozenset[str] = DEFAULT_PARTS
    quick: bool = False
    datasets: tuple[str, ...] = ()
    """The datasets of all parts except the special clouds; if the tuple is empty, each part uses its default
    datasets."""
    large: bool = False
    """Whether the part growth includes clouds of up to 100 000 particles."""

    def datasets_or(self, default: Sequence[str]) -> Sequence[str]:
        return self.datasets or default
