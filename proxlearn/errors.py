"""One family of errors: what is wrong, and the remedy, in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from proxlearn.text import printable


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for a misspelt name: the nearest known one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else "choose from " + ", ".join(names)


class NewerFormat(InputError):
    """A file of a later version: it is neither damaged nor readable here."""


def refuse_newer_format(path: Path, found: object, known: str) -> None:
    """Refuse a file whose format is ``known`` with a larger number at its end."""
    name, _, number = known.rpartition("-")
    later = re.fullmatch(rf"{re.escape(name)}-(\d{{1,9}})", found) if isinstance(found, str) else None
    if later is not None and int(later[1]) > int(number):
        problem = f"{path} was written by a newer version of proxlearn (format {found}, {known} is known here)"
        raise NewerFormat(problem, "upgrade proxlearn")
