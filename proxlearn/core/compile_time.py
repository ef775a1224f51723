"""The time that this process has spent on compiling and loading passes: no step's own time, and no sign of its pace.

Free of Numba: a progress bar asks, whichever engine makes the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class CompileTime:
    """Counts of one process. ``core/fused/code_cache.py`` reports to it."""

    def __init__(self) -> None:
        self.passes = 0
        """Passes that were compiled, and not loaded from the cache."""
        self.seconds = 0.0
        """Spent on compiling them."""
        self.load_seconds = 0.0
        """Spent on loading others from the cache."""
        self.unkept: OSError | None = None
        """Why the newest pass could not be stored for later processes, if it could not."""
        self.on_start: Callable[[], None] | None = None
        """Called when a compilation starts."""
        self._depth, self._start = 0, 0.0

    @property
    def overhead(self) -> float:
        """Seconds that went into code and not into steps."""
        return self.seconds + self.load_seconds

    def start(self) -> None:
        # A pass compiles the passes that it calls: their time is a part of its own.
        if self._depth == 0:
            self._start = time.monotonic()
            if self.on_start is not None:
                self.on_start()
        self._depth += 1

    def end(self) -> None:
        self._depth -= 1
        self.passes += 1
        if self._depth == 0:
            self.seconds += time.monotonic() - self._start


COMPILE_TIME = CompileTime()
