"""Standard streams that cannot stop a run: where one is closed, full or of a narrow encoding, words are lost.

Some commands have nothing but their words (`predict` without -o, `data`, `status`, --help). For those the loss of
standard output is an error; that its reader has gone away (`| head`) is the reader's choice, and none.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from typing import TextIO

from proxlearn.errors import RunError

STDIN, STDOUT, STDERR = 0, 1, 2


class OutputError(RunError):
    """Standard output cannot be written, and it is all that the command has to give."""


class OutputClosed(Exception):
    """Whoever read the standard output has closed it."""


class StandardStream(io.FileIO):
    """The bytes of standard output or error: after the first failure they are dropped."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)
        self.failed = False
        self.required = False
        """Whether a failure ends the command."""

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
                raise OutputError(problem, "send it to a place that takes it") from error
            if written is not None:
                return written
            # Another process made the terminal non-blocking, and it takes nothing at the moment.
            select.select([], [self], [])
        return memoryview(content).nbytes


def open_standard_streams() -> None:
    """Make sys.stdin, sys.stdout and sys.stderr usable whatever they were started with."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            # A closed one would be the number of the next file that is opened, and words would go into that. Opened
            # the wrong way round, so that it still fails as a closed one does.
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
    # How a user wants letters treated that the terminal does not have is respected; by default they are escaped.
    errors = getattr(stream, "errors", None)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace" if errors in (None, "strict", "surrogateescape") else errors,
        line_buffering=number == STDERR or raw.isatty(),
    )


def require_output(required: bool) -> None:
    """Say whether the command has nothing but its standard output."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, StandardStream):
        raw.required = required


def try_write(text: str, stream: TextIO | None) -> None:
    """Write and flush; what the stream cannot take is lost, and the caller goes on."""
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode("ascii"))
        stream.flush()
