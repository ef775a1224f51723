"""Counters of the time that this process spends on compiling and loading functions; step times exclude this time.

The module does not import Numba, because the progress bar also uses the counters with engines that do not need Numba.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class CompileTime:
    """The compilation counters of one process, updated by the modules of ``core/fused``."""

    def __init__(self) -> None:
        self.passes = 0
        """Number of compilations, including waits for a compilation in another process."""
        self.seconds = 0.0
        """Seconds spent compiling functions, or waiting for another process to compile them."""
        self.load_seconds = 0.0
        """Seconds spent loading compiled functions from the cache."""
        self.cache_error: OSError | None = None
        """Error that prevented the most recently compiled function from being cached, or None if it was cached."""
        self.on_start: Callable[[], None] | None = None
        """Function that is called when a compilation starts."""
        self._depth, self._start = 0, 0.0

    @property
    def overhead(self) -> float:
        """Seconds spent compiling and loading code rather than computing steps."""
        return self.seconds + self.load_seconds

    @property
    def is_compiling(self) -> bool:
        """Whether a pass is being compiled at this moment."""
        return self._depth > 0

    def start(self) -> None:
        # Compiling a function also compiles the functions that it calls, so only the outermost compilation is timed.
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
