"""The number of threads of the steps, chosen while a run goes on: all of them on an idle machine, one in company.

A parallel pass ends when its last thread has ended. On a machine that other processes use, some thread is often not
scheduled, and every pass waits for it: a run with two threads can be ten times slower than with one. So the step times
of both choices are compared every now and then. The bits of a run do not depend on the choice.
"""

from __future__ import annotations

import math

WINDOW_SECONDS = 0.05
"""Time over which a mean step time is measured."""
WINDOW_STEPS = 4
"""Least number of steps of a mean step time."""
LONG_STEP = 0.5
"""Seconds of a step above which one thread is not tried: the passes of such a step are so long that no thread waits."""
LONGEST_PAUSE = 128
"""Largest number of windows between two trials of the other choice, which then cost less than a hundredth."""
GAIN = 0.92
"""Ratio of step times below which the other choice is taken."""
SLOWER = 1.4
"""Ratio of step times that counts as a change of the machine, upon which the other choice is tried at once."""


class ThreadChoice:
    """The number of threads for the next step, from the seconds that the steps before have taken."""

    def __init__(self, threads: int) -> None:
        self.all_threads = threads
        self.threads = threads
        """Number of threads for the next step."""
        self._preferred = threads
        self._seconds, self._steps = 0.0, 0
        self._usual = math.inf
        """Step time of the preferred choice in the window before the newest trial, or the best one since."""
        self._pause, self._windows = 1, 0

    def record(self, seconds: float) -> None:
        """Take note of the duration of a step with ``threads`` threads, and choose again where a window has ended."""
        if self.all_threads == 1:
            return
        self._seconds += seconds
        self._steps += 1
        # A trial that is already slower than a whole window of the preferred choice can only fail.
        lost = self.threads != self._preferred and self._seconds > 2 * max(WINDOW_SECONDS, WINDOW_STEPS * self._usual)
        if not lost and (self._seconds < WINDOW_SECONDS or self._steps < WINDOW_STEPS):
            return
        step_seconds = self._seconds / self._steps
        self._seconds, self._steps = 0.0, 0
        if self.threads != self._preferred:
            self._end_trial(step_seconds)
        elif step_seconds < LONG_STEP or self._preferred == 1:
            self._windows += 1
            changed = step_seconds > SLOWER * self._usual
            self._usual = min(self._usual, step_seconds)
            if changed or self._windows >= self._pause:
                self._pause = 1 if changed else self._pause
                self._usual = step_seconds
                self.threads = self.all_threads if self._preferred == 1 else 1

    def _end_trial(self, step_seconds: float) -> None:
        self._windows = 0
        if step_seconds < GAIN * self._usual:
            self._preferred, self._usual, self._pause = self.threads, step_seconds, 1
        else:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self.threads = self._preferred
