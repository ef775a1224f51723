"""Progress reports of a selection: lines of text with the rung, the candidate, the step and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable

from tqdm import tqdm

from proxlearn.core.cloud import PointCloud
from proxlearn.core.compile_time import COMPILE_TIME

INTERVAL = 1.0
"""Minimum number of seconds between two lines about one candidate."""
FEWEST_DONE = 0.01
"""Share of the planned steps after which the remaining time is estimated; the first steps are slower than the rest."""


class SelectionProgress:
    """A reporter that passes lines of text to a function when a candidate starts and while it is trained.

    The remaining time is estimated from the duration of the steps so far. The estimate is an upper bound, because a
    candidate may stop early.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._text, self._last_step, self._more = "", 0, 0
        self._planned, self._done, self._steps_before = 0, 0, 0
        self._started = self._shown = time.monotonic()
        self._overhead = COMPILE_TIME.overhead

    def plan(self, steps: int) -> None:
        """Add ``steps`` to the planned number of steps of all candidates."""
        self._planned += steps

    def start(self, rung: int, rungs: int, place: int, count: int, last_step: int, more: int) -> None:
        """Report the start of candidate ``place`` of ``count`` in a rung; both ``place`` and ``rung`` start at 0.

        The candidate is trained for ``more`` steps, up to ``last_step``.
        """
        self._done += self._more
        self._last_step, self._more = last_step, more
        self._text = f"selection: rung {rung + 1} of {rungs}, candidate {place + 1} of {count}"
        self._line(last_step - more)

    def step(self, cloud: PointCloud, row: object) -> None:
        """Report a logged step of the current candidate; this method has the signature of a callback of ``fit``."""
        if time.monotonic() - self._shown > INTERVAL:
            self._line(cloud.step)

    def _line(self, step: int) -> None:
        self._shown = time.monotonic()
        done = self._done + step - (self._last_step - self._more)
        seconds = self._shown - self._started - (COMPILE_TIME.overhead - self._overhead)
        left = ""
        if done > FEWEST_DONE * self._planned:
            remaining = max(self._planned - done, self._last_step - step)
            left = f", about {tqdm.format_interval(seconds * remaining / done)} left"
        self._show(f"{self._text}, step {step} of {self._last_step}{left}")
