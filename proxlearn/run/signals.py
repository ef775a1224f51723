"""SIGINT and SIGTERM: obeyed at once where something slow can be done again, otherwise when the loop looks.

A second signal ends the process in any case.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """A signal came where nothing is lost by leaving at once.

    Like KeyboardInterrupt no Exception: libraries that read data or compile catch those and go on.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


class StopRequest:
    """``with StopRequest() as stop:`` then look at ``stop.signal``; inside ``stop.at_once()`` a signal raises."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._at_once = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        # Only the main thread may set handlers; elsewhere (a notebook's worker, a launcher) signals stay as they are.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """A signal raises Interrupted: for what takes long, changes no file and can be done again."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def check(self) -> None:
        """Raise Interrupted, if a signal has come before, or was suppressed by a library."""
        if self.signal is not None:
            raise Interrupted(self.signal)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
        if self._at_once:
            raise Interrupted(number)
