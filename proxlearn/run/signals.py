"""Handling of SIGINT and SIGTERM: a signal interrupts slow work that can be repeated, and is recorded otherwise.

The training loop checks for a recorded signal after every step. A second signal ends the process, unless the process
is a rank.

Python runs the handler of a signal between two bytecodes. While a library compiles or reads for seconds, or while a
compiled function runs, the handler waits. A thread therefore ends the process if work that can be repeated does not end
soon after a signal, or if the handler does not run soon after a second signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from proxlearn.terminal.streams import try_write

GRACE_SECONDS = 1.2
"""Time in seconds after a signal within which interruptible work must end; otherwise, the process is ended."""


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

    Within ``stop.interruptible()``, a signal also raises Interrupted.
    """

    def __init__(self, among_ranks: bool = False) -> None:
        """Create the object; with ``among_ranks``, ignore all signals after the first, because launchers repeat it."""
        self.signal: int | None = None
        self._among_ranks = among_ranks
        self._interruptible = False
        self._previous: dict[int, Any] = {}
        self._left = threading.Event()
        """Event that is set when an interruptible block ends."""
        self._watch: tuple[socket.socket, int] | None = None

    def __enter__(self) -> StopRequest:
        # Only the main thread can set handlers. In other threads, such as those of a notebook or a launcher, signals
        # are not handled.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
            self._start_watch()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._watch is not None:
            sender, previous = self._watch
            signal.set_wakeup_fd(previous)
            # The thread ends when its socket is closed at the other end.
            sender.close()

    def _start_watch(self) -> None:
        """Start the thread that ends the process if the main thread does not react to signals.

        The interpreter writes the number of a signal to the socket at once, even while the main thread is busy.
        """
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        previous = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        self._watch = (sender, previous)
        threading.Thread(target=self._end_if_stuck, args=(receiver,), daemon=True).start()

    def _end_if_stuck(self, receiver: socket.socket) -> None:
        signals = 0
        with receiver:
            while received := receiver.recv(1):
                number = received[0]
                if number not in self._previous:
                    continue
                signals += 1
                is_last = signals > 1 and not self._among_ranks
                if not (self._interruptible or is_last):
                    continue
                self._left.clear()
                # The handler ends the process at the second signal, so this thread survives the wait only if the
                # handler does not run.
                if (self._interruptible or is_last) and (not self._left.wait(GRACE_SECONDS) or is_last):
                    try_write("proxlearn: stopped; the same command continues the run\n", sys.stderr)
                    os._exit(128 + number)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise Interrupted if a signal arrived before the block or arrives in it.

        The block must be repeatable and must not change files.
        """
        self._interruptible = True
        try:
            self.check()
            yield
        finally:
            self._interruptible = False
            self._left.set()

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
        """Record a signal that another rank has received, and raise Interrupted."""
        self.signal = number
        raise Interrupted(number)
