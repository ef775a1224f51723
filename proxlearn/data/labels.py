"""Interpretation of a target column: two classes, more classes, or a real number; inferred where no task is given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from proxlearn.core.options import Task
from proxlearn.data.numerals import parse_numeral
from proxlearn.errors import InputError

MAX_GUESSED_CLASSES = 20
"""Integers with at most this number of different values are treated as classes, unless dataset.task is given."""
MAX_LISTED_CLASSES = 6
LEADING_ZERO = re.compile(r"[-+]?0\d+")


@dataclass(frozen=True)
class TargetEncoding:
    """A target as the recursion uses it."""

    task: Task
    target: np.ndarray
    classes: tuple[str, ...]
    description: str


def infer_target(values: np.ndarray, name: str, task: Task | None) -> TargetEncoding:
    """Encode a target as numbers or class indices (classes are sorted: of two, the second is the positive one)."""
    distinct, indices = np.unique(values, return_inverse=True)
    numeric = values.dtype.kind in "biuf"
    if numeric and not np.isfinite(values).all():
        raise InputError(f"target column `{name}` holds an infinite value", "correct it, or delete the row")
    if len(distinct) < 2:
        raise InputError(
            f"target column `{name}` holds one value only, `{_class_name(distinct[0])}`",
            "choose another dataset.target, or add rows with other values",
        )
    task = task or _guess_task(distinct, numeric, len(values))
    if task == "regression":
        if not numeric:
            row = next((i for i, value in enumerate(values) if parse_numeral(str(value)) is None), 0)
            problem = f"target column `{name}` is text ({values[row]!s:.40} in data row {row + 1}), not a number"
            raise InputError(problem, "correct the cell, or use dataset.task=multiclass")
        return TargetEncoding(
            task, values.astype(np.float64), (), f"column `{name}` is treated as a real number (regression)"
        )
    if task == "binary" and len(distinct) != 2:
        remedy = "use dataset.task=multiclass" + (" or regression" if numeric else "")
        raise InputError(
            f"dataset.task=binary, but target column `{name}` has {len(distinct)} different values", remedy
        )
    if 2 * len(distinct) > len(values):
        remedy = "choose another dataset.target" + (", or dataset.task=regression" if numeric else "")
        raise InputError(
            f"target column `{name}` has {len(distinct)} classes in {len(values)} rows: fewer than two per class",
            remedy,
        )
    classes = tuple(_class_name(value) for value in distinct)
    listed = ", ".join(classes[:MAX_LISTED_CLASSES]) + (", ..." if len(classes) > MAX_LISTED_CLASSES else "")
    description = f"column `{name}` is treated as {len(classes)} classes ({task}): {listed}"
    return TargetEncoding(task, indices.reshape(-1).astype(np.int64), classes, description)


def keep_spelling(values: np.ndarray, texts: Callable[[], np.ndarray], task: Task | None) -> np.ndarray:
    """Return the target's values, or class names as written where numbers would rename or merge the classes.

    This happens where an integer has leading zeros, or where different numbers round to the same float. Other
    spellings of one number (1 and 1.0) remain one class.
    """
    if values.dtype.kind not in "iuf" or task == "regression":
        return values
    distinct = np.unique(values)
    if task is None and len(distinct) > 1 and _guess_task(distinct, True, len(values)) == "regression":
        return values
    cells, inverse = np.unique(texts(), return_inverse=True)
    numbers: dict[float, set[Decimal]] = {}
    try:
        for cell in cells.tolist():
            numbers.setdefault(float(cell), set()).add(Decimal(cell.strip()))
    except (ValueError, InvalidOperation):
        return values
    names = {
        cell: cell.strip()
        for cell in cells.tolist()
        if LEADING_ZERO.fullmatch(cell.strip()) or len(numbers[float(cell)]) > 1
    }
    if not names or not np.isfinite(values).all():
        return values
    return np.array([names.get(cell, _class_name(float(cell))) for cell in cells.tolist()])[inverse.reshape(-1)]


def _guess_task(distinct: np.ndarray, numeric: bool, rows: int) -> Task:
    if len(distinct) == 2:
        return "binary"
    is_integer = numeric and bool(np.all(distinct == np.floor(distinct)))
    are_classes = not numeric or (is_integer and len(distinct) <= MAX_GUESSED_CLASSES and 2 * len(distinct) <= rows)
    return "multiclass" if are_classes else "regression"


def indices(texts: list[str], classes: tuple[str, ...]) -> np.ndarray:
    """Return the class indices of the labels of a file; -1 where a label is not one of the classes.

    A label matches a class if the text is the same, or denotes the same number or truth value.
    """
    class_index = {_canonical(name): index for index, name in reversed(list(enumerate(classes)))}
    class_index |= {name: index for index, name in enumerate(classes)}
    distinct, inverse = np.unique(np.array(texts, dtype=object), return_inverse=True)
    indices = [class_index.get(text, class_index.get(_canonical(text), -1)) for text in distinct.tolist()]
    return np.array(indices, dtype=np.int64)[inverse.reshape(-1)]


def _canonical(text: str) -> object:
    """Return the number or truth value that a label denotes, or its stripped text."""
    stripped = text.strip()
    number = parse_numeral(stripped)
    if number is not None:
        return number
    return stripped.lower() if stripped.lower() in ("true", "false") else stripped


def _class_name(value: object) -> str:
    """Return the name of a class as in the user's table: 1.0 is written 1."""
    return np.format_float_positional(value, trim="-") if isinstance(value, (float, np.floating)) else str(value)
