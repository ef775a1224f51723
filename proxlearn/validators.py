"""Validators of values; each takes a name and a value, and returns the validated value or raises InputError."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from proxlearn.errors import InputError
from proxlearn.files.safe_read import check_path

Check = Callable[[str, Any], Any]
LARGEST_END = 3e38
"""Largest magnitude of an endpoint of an interval; a larger one would overflow in a float32 cloud."""


def real(
    *, above: float | None = None, at_least: float | None = None, below: float | None = None, example: float
) -> Check:
    """Return a validator of finite numbers > ``above``, >= ``at_least`` and < ``below``; None means no bound.

    ``example`` is a valid value for the error message.
    """

    def check(name: str, value: Any) -> float:
        number = _number(value)
        expected = "a finite number" + _describe_range(above, at_least, below)
        if number is None or not math.isfinite(number) or not _inside(number, above, at_least, below):
            raise InputError(f"{name} must be {expected}, got {_describe(value)}", f"try {name}={example:g}")
        # Equal settings (1 and 1.0, 0 and -0.0) must have the same run folder.
        return float(number) + 0.0

    return check


def integer(*, at_least: int, below: int = 2**63, example: int) -> Check:
    """Return a validator of integers >= ``at_least`` and < ``below``; a float such as ``1e6`` counts as an integer."""

    def check(name: str, value: Any) -> int:
        number = _number(value)
        if number is None or not math.isfinite(number) or number != int(number) or not at_least <= number < below:
            expected = f"a whole number >= {at_least}"
            if number is None or not number < below:
                expected += f" and <= {below - 1}"
            raise InputError(f"{name} must be {expected}, got {_describe(value)}", f"try {name}={example}")
        return int(value)

    return check


def choice(options: Any) -> Check:
    """Return a validator that accepts the strings of a ``Literal`` type."""
    names = get_args(options)

    def check(name: str, value: Any) -> str:
        if value not in names:
            raise InputError(f"{name} cannot be {_describe(value)}", f"choose {name}=" + "|".join(names))
        return str(value)

    return check


def parse_number(word: str) -> Any:
    """Convert a command-line argument to an int or a float; return it unchanged if it is not a number."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def text(name: str, value: Any) -> str:
    """Validate that a value is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise InputError(
            f"{name} must be a non-empty string, got {_describe(value)}",
            f"write {name}=TEXT, or {name}=null for no value",
        )
    return value


def word(example: str) -> Check:
    """Return a validator of words that consist of letters, digits and . + - _, so that they can be in folder names."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > 100 or not re.fullmatch(r"\w[\w.+-]*", value):
            problem = f"{name} must be a word of letters, digits and . + - _, got {_describe(value)}"
            raise InputError(problem, f"try {name}={example}")
        return value

    return check


def flag(name: str, value: Any) -> bool:
    """Validate that a value is true or false."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {_describe(value)}", f"try {name}=true")
    return value


def label(name: str, value: Any) -> str:
    """Validate a name and return it as a string; numbers are accepted, because a column may be called 2024."""
    return text(name, str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value)


def path(name: str, value: Any) -> str:
    """Validate that a value is the path of a local file or folder, and return the path as a string."""
    return check_path(name, label(name, value))


def labels(name: str, value: Any) -> tuple[str, ...]:
    """Validate a list of names, or a single name; return a tuple of strings."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items:
        raise InputError(f"{name} is an empty list", f"leave {name} out, or try {name}=[a]")
    return tuple(dict.fromkeys(label(name, item) for item in items))


def label_or_labels(name: str, value: Any) -> str | tuple[str, ...]:
    """Validate a name, or a list of names; return a string, or a tuple of two or more strings."""
    names = labels(name, value)
    return names[0] if len(names) == 1 else names


def optional(check: Check) -> Check:
    """Return a validator that accepts None and applies ``check`` to any other value."""
    return lambda name, value: None if value is None else check(name, value)


def optional_or_auto(check: Check) -> Check:
    """Return a validator that accepts None and "auto", and applies ``check`` to any other value."""

    def checked(name: str, value: Any) -> Any:
        return value if value is None or value == "auto" else check(name, value)

    return checked


def strengths(name: str, value: Any) -> float | dict[str, float]:
    """Validate a confinement: a number >= 0, or a mapping from blocks of theta to such numbers."""
    check = real(at_least=0, example=1e-3)
    if isinstance(value, Mapping):
        return {str(key): check(f"{name}.{key}", strength) for key, strength in value.items()}
    strength: float = check(name, value)
    return strength


def whole(name: str, value: Any, at_least: int) -> int:
    """Validate an integer passed from Python code; numpy integers are accepted, but 3.0 is not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < at_least:
        raise InputError(f"{name} is {_describe(value)}", f"give a whole number >= {at_least}")
    return int(value)


def blocks(name: str, value: Any) -> dict[str, int]:
    """Validate the blocks of theta: a mapping from names to lengths >= 1."""
    if not isinstance(value, Mapping) or not value:
        problem = f"{name} must map the names of the blocks of theta to their lengths, got {_describe(value)}"
        raise InputError(problem, "write {'a': 1, 'w': 2}, for example")
    return {str(key): whole(f"the length of the block `{key}`", length, 1) for key, length in value.items()}


def callables(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    """Validate a sequence of functions, and return it as a tuple."""
    if callable(value) or isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {_describe(value)}, not a list", f"write {name}=[function]")
    functions = tuple(value)
    for function in functions:
        if not callable(function):
            raise InputError(f"the entry {_describe(function)} of {name} is not callable", "give a list of functions")
    return functions


def intervals(name: str, value: Any) -> dict[str, tuple[float, float]]:
    """Validate a box: a mapping from blocks of the parameters theta to [low, high] with low < high."""
    if not isinstance(value, Mapping) or not value:
        problem = f"{name} must map each block of theta to [low, high], got {_describe(value)}"
        raise InputError(problem, f"try '{name}={{w:[-1,1]}}'")
    return {str(key): _interval(f"{name}.{key}", ends) for key, ends in value.items()}


def _interval(name: str, ends: Any) -> tuple[float, float]:
    # Brackets are special characters in a shell, so the suggestion is quoted.
    remedy = f"try '{name}=[-1,1]'"
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise InputError(f"{name} must be [low, high], got {_describe(ends)}", remedy)
    low, high = (_number(end) for end in ends)
    if low is None or high is None or not (-LARGEST_END <= low < high <= LARGEST_END):
        expected = f"two numbers, low < high, between -{LARGEST_END:g} and {LARGEST_END:g}"
        raise InputError(f"{name} must be {expected}, got {_describe(ends)}", remedy)
    return low, high


def _describe(value: Any) -> str:
    """Return the representation of a value for a message, shortened to 100 characters."""
    try:
        description = repr(value)
    except ValueError:
        # Python does not convert integers of more than 4300 digits to decimal.
        description = hex(value)
    return description if len(description) <= 100 else description[:100] + "..."


def _number(value: Any) -> float | None:
    # A float would round integers beyond 2^53, so they stay integers; those beyond 2^64 are out of every range.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int) and abs(value) >= 2**64:
        return float(value) if abs(value) < 2**1023 else math.inf
    return value


def _inside(number: float, above: float | None, at_least: float | None, below: float | None) -> bool:
    return (
        (above is None or number > above)
        and (at_least is None or number >= at_least)
        and (below is None or number < below)
    )


def _describe_range(above: float | None, at_least: float | None, below: float | None) -> str:
    parts = [f"{sign} {bound:g}" for sign, bound in ((">", above), (">=", at_least), ("<", below)) if bound is not None]
    return " " + " and ".join(parts) if parts else ""
