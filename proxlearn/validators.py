"""Checks of single values: each takes a key's name and a value, and returns the value or says what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from proxlearn.errors import InputError
from proxlearn.files.user_paths import check_path

Check = Callable[[str, Any], Any]
LARGEST_END = 3e38
"""Of an interval: the first cloud is drawn from ends in single precision."""


def real(
    *, above: float | None = None, at_least: float | None = None, below: float | None = None, example: float
) -> Check:
    """A finite number in a range."""

    def check(name: str, value: Any) -> float:
        number = _number(value)
        wanted = "a finite number" + _range(above, at_least, below)
        if number is None or not math.isfinite(number) or not _inside(number, above, at_least, below):
            raise InputError(f"{name} must be {wanted}, got {_shown(value)}", f"try {name}={example:g}")
        # 1 and 1.0, 0 and -0.0 are one setting, and must have one run folder.
        return float(number) + 0.0

    return check


def integer(*, at_least: int, below: int = 2**63, example: int) -> Check:
    """A whole number in a range; ``1e6`` is one."""

    def check(name: str, value: Any) -> int:
        number = _number(value)
        if number is None or not math.isfinite(number) or number != int(number) or not at_least <= number < below:
            wanted = f"a whole number >= {at_least}"
            if number is None or not number < below:
                wanted += f" and <= {below - 1}"
            raise InputError(f"{name} must be {wanted}, got {_shown(value)}", f"try {name}={example}")
        return int(value)

    return check


def choice(options: Any) -> Check:
    """One of a Literal's strings."""
    names = get_args(options)

    def check(name: str, value: Any) -> str:
        if value not in names:
            raise InputError(f"{name} cannot be {_shown(value)}", f"choose {name}=" + "|".join(names))
        return str(value)

    return check


def parse_number(word: str) -> Any:
    """A word of the command line as the number that it is, for the checks; anything else stays as it is."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} must be a text, got {_shown(value)}", f"write {name}=TEXT, or {name}=null for none")
    return value


def word(example: str) -> Check:
    """A text that can be a part of a folder's name, and no more than a part."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > 100 or not re.fullmatch(r"\w[\w.+-]*", value):
            problem = f"{name} must be a word of letters, digits and . + - _, got {_shown(value)}"
            raise InputError(problem, f"try {name}={example}")
        return value

    return check


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {_shown(value)}", f"try {name}=true")
    return value


def label(name: str, value: Any) -> str:
    """A name from the user's own world, which may look like a number: a column called 2024."""
    return text(name, str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value)


def path(name: str, value: Any) -> str:
    """A file or a folder on this machine."""
    return check_path(name, label(name, value))


def optional(check: Check) -> Check:
    """``null``, or what ``check`` takes."""
    return lambda name, value: None if value is None else check(name, value)


def intervals(name: str, value: Any) -> dict[str, tuple[float, float]]:
    """A box: block -> [low, high] with low < high."""
    if not isinstance(value, Mapping) or not value:
        problem = f"{name} must map each block of theta to [low, high], got {_shown(value)}"
        raise InputError(problem, f"try '{name}={{w:[-1,1]}}'")
    return {str(key): _interval(f"{name}.{key}", ends) for key, ends in value.items()}


def _interval(name: str, ends: Any) -> tuple[float, float]:
    # In quotes: brackets mean something to a shell.
    remedy = f"try '{name}=[-1,1]'"
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        raise InputError(f"{name} must be [low, high], got {_shown(ends)}", remedy)
    low, high = (_number(end) for end in ends)
    if low is None or high is None or not (-LARGEST_END <= low < high <= LARGEST_END):
        raise InputError(
            f"{name} must be two finite numbers, low < high, within +-{LARGEST_END:g}, got {_shown(ends)}", remedy
        )
    return low, high


def _shown(value: Any) -> str:
    """A value in a message; of a long one, the beginning."""
    try:
        shown = repr(value)
    except ValueError:
        # Python writes no decimal numbers of more than 4300 digits.
        shown = hex(value)
    return shown if len(shown) <= 100 else shown[:100] + "..."


def _number(value: Any) -> float | None:
    # int(float) above would round integers beyond 2^53: keep an int as it is, unless nobody can want it exactly.
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


def _range(above: float | None, at_least: float | None, below: float | None) -> str:
    parts = [f"{sign} {bound:g}" for sign, bound in ((">", above), (">=", at_least), ("<", below)) if bound is not None]
    return " " + " and ".join(parts) if parts else ""
