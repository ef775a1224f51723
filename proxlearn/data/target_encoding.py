"""Interpret a target column as two classes, several classes or real numbers, and encode it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from proxlearn.core.options import Task
from proxlearn.data.csv_file import parse_numeral
from proxlearn.data.scaling import MAX_MAGNITUDE, OTHER_UNIT
from proxlearn.errors import InputError

MAX_GUESSED_CLASSES = 20
"""An integer target with at most this many different values is treated as classes, unless dataset.task is given."""
MAX_LISTED_CLASSES = 6
LEADING_ZERO = re.compile(r"[-+]?0\d+")


@dataclass(frozen=True)
class TargetEncoding:
    """A target column encoded as class indices or real numbers, with its task and class names."""

    task: Task
    target: np.ndarray
    classes: tuple[str, ...]
    description: str


def infer_target(
    values: np.ndarray, name: str, task: Task | None, row_numbers: np.ndarray | None = None
) -> TargetEncoding:
    """Encode a target column as class indices or real numbers, and infer the task if ``task`` is None.

    Classes are sorted; of two classes, the second is the positive one. Raise InputError if the values do not suit the
    task. ``row_numbers`` contains the numbers of the rows of the values in the table, counted from 1; if it is None, no
    row of the table was left out.
    """
    row_numbers = np.arange(len(values)) + 1 if row_numbers is None else row_numbers
    distinct, indices = np.unique(values, return_inverse=True)
    numeric = values.dtype.kind in "biuf"
    if numeric and not np.isfinite(values).all():
        raise InputError(f"target column `{name}` has an infinite value", "correct the value, or delete the row")
    if len(distinct) < 2:
        raise InputError(
            f"target column `{name}` has only one distinct value, `{_class_name(distinct[0])}`",
            "choose another dataset.target, or add rows with other values",
        )
    task = task or _guess_task(distinct, numeric, len(values))
    if task == "regression":
        if numeric and np.abs(distinct).max() > MAX_MAGNITUDE:
            row = int(np.abs(values).argmax())
            value, number = values[row], row_numbers[row]
            problem = f"the value {value:.6g} in data row {number} of target column `{name}` is too large"
            raise InputError(problem, OTHER_UNIT)
        if not numeric:
            row = next((i for i, value in enumerate(values) if parse_numeral(str(value)) is None), 0)
            text, number = f"{values[row]!s:.40}", row_numbers[row]
            problem = f"target column `{name}` contains text ({text} in data row {number}) instead of numbers"
            raise InputError(problem, "correct the cell, or use dataset.task=multiclass")
        return TargetEncoding(
            task, values.astype(np.float64), (), f"column `{name}` is treated as a real-valued target (regression)"
        )
    if task == "binary" and len(distinct) != 2:
        remedy = "use dataset.task=multiclass" + (" or dataset.task=regression" if numeric else "")
        raise InputError(f"dataset.task=binary, but target column `{name}` has {len(distinct)} distinct values", remedy)
    if 2 * len(distinct) > len(values):
        remedy = "choose another dataset.target" + (", or use dataset.task=regression" if numeric else "")
        raise InputError(
            f"target column `{name}` has {len(distinct)} classes in {len(values)} rows, fewer than two rows per class",
            remedy,
        )
    classes = tuple(_class_name(value) for value in distinct)
    listed = ", ".join(classes[:MAX_LISTED_CLASSES]) + (", ..." if len(classes) > MAX_LISTED_CLASSES else "")
    description = f"column `{name}` is treated as a class label with {len(classes)} classes ({task}): {listed}"
    return TargetEncoding(task, indices.reshape(-1).astype(np.int64), classes, description)


def keep_spelling(values: np.ndarray, texts: Callable[[], np.ndarray], task: Task | None) -> np.ndarray:
    """Return ``values``, or class names as strings if the conversion to numbers would change or merge some of them.

    Strings are returned if an integer is written with leading zeros, or if different numbers round to the same float;
    the classes concerned are then named as written in the table. All other spellings of a number (1 and 1.0) denote the
    same class. ``texts`` returns the cells of the target column as written; it is called only if they are needed.
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
    """Return the class index of each label in ``texts``, or -1 for a label that is not one of the classes.

    A label matches a class if both are the same text, the same number or the same truth value.
    """
    class_index = {_canonical(name): index for index, name in reversed(list(enumerate(classes)))}
    class_index |= {name: index for index, name in enumerate(classes)}
    distinct, inverse = np.unique(np.array(texts, dtype=object), return_inverse=True)
    indices = [class_index.get(text, class_index.get(_canonical(text), -1)) for text in distinct.tolist()]
    return np.array(indices, dtype=np.int64)[inverse.reshape(-1)]


def _canonical(text: str) -> object:
    """Return a label in a form that is equal for all spellings of the same number or truth value."""
    stripped = text.strip()
    number = parse_numeral(stripped)
    if number is not None:
        return number
    return stripped.lower() if stripped.lower() in ("true", "false") else stripped


def _class_name(value: object) -> str:
    """Return the name of a class as a string; a float without a fractional part is written without a decimal point."""
    return np.format_float_positional(value, trim="-") if isinstance(value, (float, np.floating)) else str(value)
