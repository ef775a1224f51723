"""Standard streams whose failures do not stop a run, and notices to the user, which are printed on stderr.

For some commands, standard output is the only result (`predict` without -o, `data`, `status`, --help). For these
commands, a failed write is an error, but a closed pipe (`| head`) ends the command without an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import ClassVar, TextIO

from proxlearn.errors import RunError
from proxlearn.printable_text import printable

STDIN, STDOUT, STDERR = 0, 1, 2


class OutputError(RunError):
    """Raised if standard output is the only result of the command and cannot be written."""


class OutputClosed(Exception):
    """Raised if the process that reads standard output has closed the pipe."""


class StandardStream(io.FileIO):
    """A byte stream to standard output or standard error that drops all bytes after the first failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)
        self.failed = False
        self.required = False
        """Whether a failed write ends the command with an error."""

    def write(self, content) -> int:  # type: ignore[no-untyped-def]
        while not self.failed:
            try:
                written: int | None = super().write(content)
            except OSError as error:
                self.failed = True
                if not self.required:
                    break
                if isinstance(error, BrokenPipeError):
                    raise OutputClosed from error
                problem = f"cannot write to standard output: {error.strerror or error}"
                raise OutputError(problem, "redirect it to a file on a disk with free space") from error
            if written is not None:
                return written
            # Another process has made the terminal non-blocking, and the terminal accepts no output at the moment.
            select.select([], [self], [])
        return memoryview(content).nbytes


def open_standard_streams() -> None:
    """Make sys.stdin, sys.stdout and sys.stderr usable, even if one of their descriptors is closed."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            # If the descriptor stayed closed, the next opened file would get its number, and output would go into that
            # file. /dev/null is opened in the opposite direction, so that a use still fails as with a closed
            # descriptor.
            os.open(os.devnull, os.O_WRONLY if number == STDIN else os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115 - it lives as long as the process
    sys.stdout = _tolerant_stream(sys.stdout, STDOUT)
    sys.stderr = _tolerant_stream(sys.stderr, STDERR)


def _tolerant_stream(stream: TextIO | None, number: int) -> io.TextIOWrapper:
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    raw = StandardStream(number)
    # The user's error handler for characters that the encoding lacks is kept; by default, they are escaped.
    errors = getattr(stream, "errors", None)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace" if errors in (None, "strict", "surrogateescape") else errors,
        line_buffering=number == STDERR or raw.isatty(),
    )


def require_output(required: bool) -> None:
    """Set whether a failed write to standard output is an error."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, StandardStream):
        raw.required = required


def try_write(text: str, stream: TextIO | None) -> None:
    """Write ``text`` to a stream and flush it; ignore an OSError or a ValueError."""
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode("ascii"))
        stream.flush()


class Notices:
    """The state of this process's notices; if several ranks run a command, all ranks except one are silent."""

    silent = False
    printed: ClassVar[set[str] | None] = None
    """The notices printed so far in a ``distinct_notices`` block; None outside such a block."""


@contextlib.contextmanager
def distinct_notices() -> Iterator[None]:
    """Print each notice inside the block only once."""
    before, Notices.printed = Notices.printed, set()
    try:
        yield
    finally:
        Notices.printed = before


@contextlib.contextmanager
def silent_notices() -> Iterator[None]:
    """Suppress all notices inside the block."""
    before, Notices.silent = Notices.silent, True
    try:
        yield
    finally:
        Notices.silent = before


def notice(text: str) -> None:
    """Print ``text`` as one line on stderr, unless this process is silent."""
    if Notices.silent or text in (Notices.printed or ()):
        return
    if Notices.printed is not None:
        Notices.printed.add(text)
    try_write(f"proxlearn: {printable(text)}\n", sys.stderr)
