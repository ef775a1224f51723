"""One family of errors: what is wrong, and the remedy, in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from proxlearn.text import printable

SAME_COMMAND = "the same command"
MOST_NAMES = 20
"""In one message; a table may have thousands of columns."""


def continue_command(overwrite: bool) -> str:
    """What continues a run that is in its place: with ``overwrite`` the same command would start it again."""
    return f"{SAME_COMMAND} without overwrite=true" if overwrite else SAME_COMMAND


class ProxlearnError(Exception):
    """Shown to the user as a single line, without a traceback."""

    exit_code = 1

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        # One line, whatever a file's own names and numbers contain.
        super().__init__(printable(f"{problem}; {remedy}"))


class InputError(ProxlearnError):
    """The command, a config or a file given by the user is wrong: nothing has been started."""

    exit_code = 2


class RunError(ProxlearnError):
    """A run that had started cannot go on."""


class StoppedBySignal(ProxlearnError):
    """A signal came before a session's first step."""

    def __init__(self, signal: int, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.exit_code = 128 + signal


def system_failure(error: BaseException) -> RunError:
    """A disk, a device or a memory that fails, in one line."""
    if not isinstance(error, OSError):
        return RunError("this machine's memory is not enough", "choose a smaller N, fewer rows, or a larger machine")
    place = f"{error.filename}: " if error.filename is not None else ""
    why = error.strerror or str(error) or type(error).__name__
    return RunError(f"{place}{why}", "put that right, and give the same command again")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for a misspelt name: the nearest known one, or those that there are."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return "choose from " + ", ".join(names[:MOST_NAMES]) + more


class NewerFormat(InputError):
    """A file of a later version: it is neither damaged nor readable here."""


def refuse_newer_format(path: Path, found: object, known: str) -> None:
    """Refuse a file whose format is ``known`` with a larger number at its end."""
    name, _, number = known.rpartition("-")
    later = re.fullmatch(rf"{re.escape(name)}-(\d{{1,9}})", found) if isinstance(found, str) else None
    if later is not None and int(later[1]) > int(number):
        problem = f"{path} was written by a newer version of proxlearn (format {found}, {known} is known here)"
        raise NewerFormat(problem, "upgrade proxlearn")
