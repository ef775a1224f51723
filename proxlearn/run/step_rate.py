"""The number of steps per second in a session, excluding compilation time."""

from __future__ import annotations

import time

from proxlearn.core.compile_time import COMPILE_TIME


class StepRate:
    """A counter of steps and their time, without the steps during which code is compiled or loaded.

    Such a step takes as long as thousands of others and would distort the estimate of the time left.
    """

    def __init__(self, step: int) -> None:
        self._step, self._time, self._overhead = step, time.monotonic(), COMPILE_TIME.overhead
        self._steps, self._seconds = 0, 0.0

    def advance(self, step: int) -> None:
        now = time.monotonic()
        if COMPILE_TIME.overhead == self._overhead:
            self._steps += step - self._step
            self._seconds += now - self._time
        self._step, self._time, self._overhead = step, now, COMPILE_TIME.overhead

    @property
    def rate(self) -> float:
        """Recursions per second, or 0 before the first step that counts."""
        return self._steps / self._seconds if self._seconds > 0 else 0.0
