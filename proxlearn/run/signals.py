"""Handling of SIGINT and SIGTERM: a signal interrupts slow work that can be repeated; otherwise, it is recorded.

The training loop checks for a recorded signal after every step. A second signal ends the process in any case.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """Raised if a signal arrives inside ``StopRequest.interruptible``.

    Like KeyboardInterrupt, it is not a subclass of Exception, because libraries that read data or compile code may
    catch Exception.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


class StopRequest:
    """A context manager that records signals within ``with StopRequest() as stop:``.

    Within ``stop.interruptible()``, a signal raises Interrupted instead.
    """

    def __init__(self, among_ranks: bool = False) -> None:
        """Prepare the handlers; ``among_ranks`` ignores further signals, because a launcher repeats the terminal's."""
        self.signal: int | None = None
        self._among_ranks = among_ranks
        self._interruptible = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        # Only the main thread can set handlers; in other threads (a notebook's worker, a launcher), signals are left
        # alone.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise Interrupted if a signal arrives in the block, which must be repeatable and must not change files."""
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False

    def check(self) -> None:
        """Raise Interrupted if a signal has arrived, even if a library has suppressed an earlier Interrupted."""
        if self.signal is not None:
            raise Interrupted(self.signal)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if self._among_ranks:
                return
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
        if self._interruptible:
            raise Interrupted(number)

    def interrupt(self, number: int) -> None:
        """Act on a signal that another rank has received."""
        self.signal = number
        raise Interrupted(number)
