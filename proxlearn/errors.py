"""The errors that a user sees: the problem and its remedy in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from proxlearn.text import printable

SAME_COMMAND = "the same command"
MAX_NAMES = 20
"""Maximum number of names in one message: a table may have thousands of columns."""


def continue_command(overwrite: bool) -> str:
    """Return the words for the command that continues a run; with ``overwrite`` the same command restarts it."""
    return f"{SAME_COMMAND} without overwrite=true" if overwrite else SAME_COMMAND


class ProxlearnError(Exception):
    """An error that is printed as a single line, without a traceback."""

    exit_code = 1

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        # Names and values from a user's file may contain line breaks.
        super().__init__(printable(f"{problem}; {remedy}"))


class InputError(ProxlearnError):
    """A command, a config or a user's file is wrong, and no run was started."""

    exit_code = 2


class RunError(ProxlearnError):
    """A run that was started cannot continue."""


class StoppedBySignal(ProxlearnError):
    """A signal arrived before the first step of a session."""

    def __init__(self, signal: int, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.exit_code = 128 + signal


def system_failure(error: BaseException) -> RunError:
    """Return the error for a failure of a disk, a device or the memory."""
    if not isinstance(error, OSError):
        return RunError("not enough memory on this machine", "choose a smaller N, fewer rows, or a larger machine")
    prefix = f"{error.filename}: " if error.filename is not None else ""
    reason = error.strerror or str(error) or type(error).__name__
    return RunError(f"{prefix}{reason}", "fix the cause, then repeat the same command")


def did_you_mean(word: str, valid_names: Iterable[str]) -> str:
    """Return the remedy for a misspelt name: the closest valid one, or a list of them."""
    names = sorted(valid_names)
    closest = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if closest:
        return f"did you mean `{closest[0]}`?"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return "choose from " + ", ".join(names[:MAX_NAMES]) + more


class NewerFormat(InputError):
    """A file was written by a later version: it is not damaged, but this version cannot read it."""


def refuse_newer_format(path: Path, file_format: object, own_format: str) -> None:
    """Refuse a file whose format is a later version of ``own_format``: the same name with a larger number."""
    name, _, number = own_format.rpartition("-")
    match = re.fullmatch(rf"{re.escape(name)}-(\d{{1,9}})", file_format) if isinstance(file_format, str) else None
    if match is not None and int(match[1]) > int(number):
        problem = (
            f"{path} was written by a newer version of proxlearn (format {file_format}; this version: {own_format})"
        )
        raise NewerFormat(problem, "upgrade proxlearn")
