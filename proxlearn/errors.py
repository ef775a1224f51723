"""One family of errors: what is wrong, and the remedy, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for a misspelt name: the nearest known one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else "choose from " + ", ".join(names)
