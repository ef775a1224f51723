"""The exceptions whose messages are shown to the user: one line that states the problem and the remedy."""

from __future__ import annotations

import copyreg
import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from proxlearn.printable_text import printable

SAME_COMMAND = "the same command"
MAX_NAMES = 20
"""Maximum number of names in one message, because a table may have thousands of columns."""

EXIT_CODES = {
    0: "success",
    1: "a run, a job or a cell failed, for example because of a full disk, a lack of memory or a non-finite value",
    2: "wrong command, config, file or folder; nothing was changed",
    130: "stopped by Ctrl-C (SIGINT); a run has stored a checkpoint, and the same command continues it",
    143: "stopped by SIGTERM; otherwise the same as 130",
}
"""Exit codes of all commands; a sweep, a search and a comparison return 1 if any of their jobs failed."""

USER_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""The exceptions that a user-defined function may raise if it cannot handle the tensors that are passed to it."""

TORCH_ERRORS = {
    "data-dependent control flow": (
        "it decides by the value of a tensor (if, while, and, or, max, min)",
        "use torch.where instead of if, and torch.maximum instead of max",
    ),
    "Boolean value of Tensor": (
        "it decides by the value of a tensor (if, while, and, or, max, min)",
        "use torch.where instead of if, and torch.maximum instead of max",
    ),
    "calling .item()": (
        "it converts a tensor to a Python number (float, .item(), or a function of the module math)",
        "use functions of torch, such as torch.sin instead of math.sin",
    ),
    "doesn't have storage": ("it converts a tensor to a NumPy array", "use functions of torch instead of NumPy"),
    "indexing with a boolean mask": ("it selects entries with a mask", "use torch.where instead of a mask"),
}
"""Explanations and remedies for errors of torch in a user-defined function, by a part of torch's message."""


def continue_command(overwrite: bool) -> str:
    """Return a phrase that names the command that continues a run, for use in a message.

    With ``overwrite``, the same command would start the run again, so the phrase tells the user to leave out
    ``overwrite=true``.
    """
    return f"{SAME_COMMAND} without overwrite=true" if overwrite else SAME_COMMAND


class ProxlearnError(Exception):
    """An error that is printed as a single line, without a traceback.

    Parameters
    ----------
    problem : str
        What is wrong.
    remedy : str
        What to do; the message is the problem, a semicolon and the remedy.

    Examples
    --------
    >>> import proxlearn as pl
    >>> try:
    ...     pl.train("dataset=wdbc", "betta=1")
    ... except pl.ProxlearnError as error:
    ...     print(error, error.exit_code)
    unknown key `betta`; did you mean `beta`? 2
    """

    exit_code = 1

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        # Names and values from a user's file may contain line breaks.
        super().__init__(printable(f"{problem}; {remedy}"))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        # By default, pickle rebuilds an exception from its message alone, so a worker process could not return it.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InputError(ProxlearnError):
    """An error in the user's command, config or files; the exit code is 2.

    Parameters
    ----------
    problem : str
        What is wrong.
    remedy : str
        What to do.

    Examples
    --------
    >>> import proxlearn as pl
    >>> try:
    ...     pl.neurons.Softmax(classes=1)
    ... except pl.InputError as error:
    ...     print(error.remedy)
    give a whole number >= 2
    """

    exit_code = 2


def user_function_error(problem: str, error: Exception, remedy: str) -> InputError:
    """Return the InputError for an exception that a user-defined function has raised.

    torch describes operations that it cannot vectorise as defects of torch; such a message is replaced by an
    explanation, and ``remedy`` by a remedy for the operation.
    """
    text = " ".join(str(error).split())
    explanations = (explanation for part, explanation in TORCH_ERRORS.items() if part in text)
    explanation, remedy = next(explanations, (text, remedy))
    return InputError(f"{problem}: {explanation}", remedy)


class RunError(ProxlearnError):
    """A failure of a run or of the machine on which it runs; the exit code is 1.

    Parameters
    ----------
    problem : str
        What is wrong.
    remedy : str
        What to do.

    Examples
    --------
    >>> import proxlearn as pl
    >>> str(pl.RunError("the disk is full", "free some space")), pl.RunError.exit_code
    ('the disk is full; free some space', 1)
    """


class StoppedBySignal(ProxlearnError):
    """Raised if a signal stops a run outside its training loop; the exit code is 128 plus the signal number."""

    def __init__(self, signal: int, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.exit_code = 128 + signal


def system_failure(error: BaseException) -> RunError:
    """Return the RunError that reports an OSError or, for any other exception, a lack of memory."""
    if not isinstance(error, OSError):
        return RunError(
            "not enough memory on this machine", "choose a smaller N or fewer rows, or use a machine with more memory"
        )
    prefix = f"{error.filename}: " if error.filename is not None else ""
    reason = error.strerror or str(error) or type(error).__name__
    return RunError(f"{prefix}{reason}", "fix the cause, then repeat the same command")


def did_you_mean(word: str, valid_names: Iterable[str]) -> str:
    """Return the remedy for a misspelt name: the closest valid name or a list of the valid names."""
    names = sorted(valid_names)
    closest = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if closest:
        return f"did you mean `{closest[0]}`?"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return "choose from " + ", ".join(names[:MAX_NAMES]) + more


class NewerFormat(InputError):
    """Raised if a file was written by a newer version of proxlearn and cannot be read by this version."""


def refuse_newer_format(path: Path, file_format: object, own_format: str) -> None:
    """Raise NewerFormat if ``file_format`` is newer than ``own_format``: the same name with a larger number."""
    name, _, number = own_format.rpartition("-")
    match = re.fullmatch(rf"{re.escape(name)}-(\d{{1,9}})", file_format) if isinstance(file_format, str) else None
    if match is not None and int(match[1]) > int(number):
        problem = (
            f"{path} was written by a newer version of proxlearn (format {file_format}; this version: {own_format})"
        )
        raise NewerFormat(problem, "upgrade proxlearn")
