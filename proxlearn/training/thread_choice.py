"""The number of threads of the steps, which adapts to the load: all threads on an idle machine, one on a busy machine.

A parallel loop ends when its last thread has finished. On a machine with other busy processes, one thread is often not
scheduled, and every loop waits for it; a run with two threads can be ten times slower than a run with one. Therefore,
the step times of both choices are compared from time to time. The results of a run do not depend on the choice.
"""

from __future__ import annotations

import math

WINDOW_SECONDS = 0.05
"""Duration of a window, in seconds, over which the mean step time is measured."""
WINDOW_STEPS = 4
"""Minimum number of steps in a window."""
LONG_STEP = 0.5
"""Duration of a step, in seconds, above which one thread is not tried, because waiting takes a negligible part of a
long step.
"""
LONGEST_PAUSE = 128
"""Largest number of windows between two trials of the other choice; the trials then cost less than 1 % of the time."""
GAIN = 0.92
"""Ratio of the step time in a trial to the usual one below which the tried number of threads is adopted."""
SLOWER = 1.4
"""Ratio of a step time to the usual one above which the machine's load has changed; a trial then starts at once."""


class ThreadChoice:
    """The choice of the number of threads for the next step, based on the durations of the previous steps."""

    def __init__(self, threads: int) -> None:
        self.all_threads = threads
        self.threads = threads
        """Number of threads for the next step."""
        self._preferred = threads
        self._seconds, self._steps = 0.0, 0
        self._usual = math.inf
        """Step time of the preferred choice in the window before the newest trial, or the shortest step time since
        then."""
        self._pause, self._windows = 1, 0

    def record(self, seconds: float) -> None:
        """Record the duration of a step with ``threads`` threads, and choose again at the end of a window."""
        if self.all_threads == 1:
            return
        self._seconds += seconds
        self._steps += 1
        # A trial that already takes longer than two windows of the preferred choice has failed.
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
