"""Interpret the columns of a user's table as numbers or text, and find the problems that prevent their use."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import scaling
from proxlearn.data.csv_file import MISSING_VALUES, TableFormat, parse_numeral, row_and_others
from proxlearn.data.scaling import MAX_MAGNITUDE
from proxlearn.data.table_problems import TableProblem

MAX_CATEGORIES = 50
"""Maximum number of categories of a column that is encoded as 0/1 columns."""
MAX_MARKERS = 5
"""Maximum number of distinct texts in a column of numbers that a message proposes to treat as missing values."""
MAX_GUESSED_TEXTS = 20
"""Maximum number of distinct values for which a target that mixes numbers and text is treated as classes."""
NUMBERED_ROWS = 10
"""Minimum number of rows in a table for a notice about a column that may identify the rows."""
TIME = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?(Z|[+-]\d\d:?\d\d)?"
DATE = re.compile(
    rf"((\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\d{{1,2}}[ -][A-Za-z]{{3,9}}\.?[ -]\d{{2,4}}|[A-Za-z]{{3,9}}\.? \d{{1,2}},? \d{{4}})([T ]+{TIME})?|{TIME})"
)
COMMA_NUMBER = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][-+]?\d+)?")
"""A number with a decimal comma, such as 2,5 or 1.234,5; a number without a comma also matches."""
POINT_NUMBER = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
"""A number with commas between thousands, such as 1,234.5."""
UNITS = "$€£¥₹%"
WITH_UNIT = re.compile(rf"([-+]?)[{UNITS}]?\s*([-+]?)([\d.,].*?)\s*[{UNITS}]?")
"""A number with a currency symbol before it or after it, or with a percent sign after it."""
SPACED_THOUSANDS = re.compile("[1-9]\\d{0,2}(?:([ \u00a0\u202f'\u2019])\\d{3})(?:\\1\\d{3})*(?!\\d)")
"""A number with blanks or apostrophes between thousands, such as 1 234 567."""
Decimal = Literal["comma", "point"]


@dataclass(frozen=True)
class Column:
    """A column of a table: numbers (float64, NaN for missing values), text (None for missing values), or dates."""

    kind: Literal["number", "text", "date"]
    values: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """A mask of the missing cells."""
        gaps = np.isnan(self.values) if self.kind == "number" else [value is None for value in self.values]
        return np.asarray(gaps, dtype=bool)


def parse_column(series: Any, form: TableFormat, missing_values: Sequence[str] = ()) -> Column:
    """Return a column of a pandas data frame as a ``Column`` of numbers, text or dates.

    Cells whose text is in ``missing_values`` are missing.
    """
    import pandas as pd

    if series.dtype.kind in "biuf" and not pd.api.types.is_extension_array_dtype(series.dtype):
        return Column("number", _mask_numbers(series.to_numpy(dtype=np.float64), missing_values))
    if series.dtype.kind in "Mm":
        return Column("date", series.to_numpy(dtype=object))
    if pd.api.types.is_numeric_dtype(series.dtype) or pd.api.types.is_bool_dtype(series.dtype):
        return Column("number", _mask_numbers(series.to_numpy(dtype=np.float64, na_value=np.nan), missing_values))
    cells = series.astype(object)
    codes, distinct = pd.factorize(cells if cells.map(_is_hashable).all() else cells.map(str))
    if len(distinct) and all(isinstance(value, (datetime.date, datetime.time)) for value in distinct):
        return Column("date", cells.to_numpy())
    texts = [value if isinstance(value, bool) else str(value).strip() for value in distinct]
    markers = {*MISSING_VALUES, *missing_values}
    parsed = [np.nan if text in markers else parse_number(text, form) for text in texts]
    # Missing cells have the code -1, which selects the last entry of a look-up table.
    if all(number is not None for number in parsed):
        numbers = np.array([*parsed, np.nan], dtype=np.float64)[codes]
        return Column("number", _mask_numbers(numbers, missing_values))
    names = [None if text in markers else str(text) for text in texts]
    return Column("text", np.array([*names, None], dtype=object)[codes])


def _is_hashable(value: Any) -> bool:
    return getattr(value, "__hash__", None) is not None


def _mask_numbers(numbers: np.ndarray, missing_values: Sequence[str]) -> np.ndarray:
    marks = [number for text in missing_values if (number := parse_numeral(text)) is not None]
    return np.where(np.isin(numbers, marks), np.nan, numbers) if marks else numbers


def parse_number(text: str | bool, form: TableFormat) -> float | None:
    """Return the number that a cell denotes in the format of its table, or None if it does not denote a number.

    Truth values denote the numbers 1 and 0.
    """
    if isinstance(text, bool) or text.lower() in ("true", "false"):
        return float(str(text).lower() == "true")
    text = text if form.decimal is None else without_unit(text)
    if form.decimal == "comma" and COMMA_NUMBER.fullmatch(text):
        return parse_numeral(text.replace(".", "").replace(",", "."))
    if form.decimal == "point" and POINT_NUMBER.fullmatch(text):
        return parse_numeral(text.replace(",", ""))
    return None if form.decimal == "comma" and "." in text else parse_numeral(text)


def without_unit(text: str) -> str:
    """Return the text of a number without its currency symbol or percent sign.

    Blanks around the number, and blanks or apostrophes between thousands, are also removed. Other text is returned
    unchanged.
    """
    matched = WITH_UNIT.fullmatch(text.replace("\u2212", "-"))
    if matched is None or (matched[1] and matched[2]):
        return text
    number = matched[3]
    if grouped := SPACED_THOUSANDS.match(number):
        number = grouped[0].replace(grouped[1], "") + number[grouped.end() :]
    return matched[1] + matched[2] + number


def infer_decimal(columns: Iterable[Column], form: TableFormat, *, is_text_file: bool) -> Decimal:
    """Return the decimal sign that fits most of the columns for which only one of the two signs is possible.

    Numbers with a fractional part in a text file have been parsed with a decimal point, so their columns count for the
    point. If both signs fit equally many columns, the result is the comma.
    """
    fits = [_fitting_decimals(column, form) for column in columns if column.kind == "text"]
    with np.errstate(invalid="ignore"):
        fractions = [np.any(c.values % 1 > 0) for c in columns if c.kind == "number"] if is_text_file else []
    commas = fits.count({"comma"})
    points = fits.count({"point"}) + int(sum(fractions))
    # Without other evidence, 1,234 is a number with a decimal comma.
    return "comma" if (commas > 0 and commas >= points) or not points else "point"


def _fitting_decimals(column: Column, form: TableFormat) -> set[Decimal]:
    """Return the decimal signs with which most of the texts in a column are numbers.

    The set is empty if ``form`` states the decimal sign, or if most of the texts are not numbers with either sign.
    """
    values = {value for value in column.values if value is not None}
    texts = [text for text in values if parse_number(text, form) is None]
    if form.decimal is not None or not texts:
        return set()
    plain = [without_unit(text) for text in texts]
    changed = [new != old for new, old in zip(plain, texts, strict=True)]
    commas = sum(
        COMMA_NUMBER.fullmatch(number) is not None and ("," in number or has_unit)
        for number, has_unit in zip(plain, changed, strict=True)
    )
    points = sum(
        POINT_NUMBER.fullmatch(number) is not None or (has_unit and parse_numeral(number) is not None)
        for number, has_unit in zip(plain, changed, strict=True)
    )
    if 2 * max(commas, points) <= len(texts):
        return set()
    if commas != points:
        return {"comma" if commas > points else "point"}
    # 1,234 is ambiguous; if any number has a decimal point, or if no number has a comma, it is not a decimal comma.
    numbers = map(without_unit, values)
    has_points = any("." in text for text in numbers if POINT_NUMBER.fullmatch(text) or parse_numeral(text) is not None)
    return {"point"} if has_points or not any("," in text for text in plain) else {"comma", "point"}


def feature_problems(
    columns: Mapping[str, Column], config: DatasetConfig, form: TableFormat, decimal: Decimal
) -> list[TableProblem]:
    """Return the problems that prevent the use of the feature columns with the settings of a config.

    ``decimal`` is the decimal sign of the table (``infer_decimal``).
    """
    return [
        problem
        for name, column in columns.items()
        for problem in _feature_problems(name, column, config, form, decimal)
    ]


def _feature_problems(
    name: str, column: Column, config: DatasetConfig, form: TableFormat, decimal: Decimal
) -> list[TableProblem]:
    missing = column.missing
    if column.kind == "date":
        row = int((~missing).argmax())
        date = f"{column.values[row]!s:.30} in data row {row + 1}"
        return [TableProblem(f"column `{name}` contains dates ({date})", _drop(name))]
    problem = None
    if column.kind == "text":
        problem = _text_problem(name, column, config, form, decimal, is_target=False)
    elif not missing.all():
        problem = _number_problem(name, column.values)
    problems = [] if problem is None else [problem]
    if missing.any() and not missing.all() and config.missing is None and not (problem and "drop" in problem.settings):
        where = row_and_others(int(missing.argmax()) + 1, int(missing.sum()) - 1)
        problems.append(TableProblem(f"column `{name}` lacks a value in {where}", {"missing": "median"}))
    return problems


def target_problems(
    name: str, column: Column, config: DatasetConfig, form: TableFormat, decimal: Decimal
) -> list[TableProblem]:
    """Return the problems that prevent the use of a target column, except those that depend on the task."""
    problems: list[TableProblem] = []
    if column.kind == "text":
        problem = _text_problem(name, column, config, form, decimal, is_target=True)
        problems += [] if problem is None else [problem]
    elif column.kind == "number" and (infinite := np.isinf(column.values)).any():
        where = row_and_others(int(infinite.argmax()) + 1, int(infinite.sum()) - 1)
        answer = {"missing_values": _infinities(column.values), "missing": "drop"}
        problems.append(TableProblem(f"target column `{name}` has an infinite value in {where}", answer))
    missing = column.missing
    if missing.any() and config.missing is None:
        where = row_and_others(int(missing.argmax()) + 1, int(missing.sum()) - 1)
        problems.append(TableProblem(f"target column `{name}` lacks a value in {where}", {"missing": "drop"}))
    return problems


def _text_problem(
    name: str, column: Column, config: DatasetConfig, form: TableFormat, decimal: Decimal, *, is_target: bool
) -> TableProblem | None:
    """Return the problem of a column that contains text, or None if its text can be used."""
    import pandas as pd

    values = column.values
    present = pd.Series([value for value in values if value is not None], dtype=object)
    counts = present.value_counts(sort=False)
    is_text = np.array([parse_number(text, form) is None for text in counts.index], dtype=bool)
    texts = counts.index[is_text].tolist()
    if not texts:
        # All cells denote truth values, which could also be read as numbers.
        return None
    first = next(i for i, value in enumerate(values) if value is not None and value in set(texts))
    where = f"({values[first]!r:.42} in data row {first + 1})"
    noun = f"target column `{name}`" if is_target else f"column `{name}`"
    fitting = _fitting_decimals(column, form)
    if fitting and (decimal in fitting or is_target):
        decimal = decimal if decimal in fitting else next(iter(fitting))
        problem = f"{noun} contains numbers with a decimal comma {where}"
        if decimal == "point":
            kind = "commas between thousands" if POINT_NUMBER.fullmatch(texts[0]) else "a unit or separated thousands"
            problem = f"{noun} contains numbers with {kind} {where}"
        return TableProblem(problem, {"decimal": decimal})
    if fitting:
        other = "decimal points" if decimal == "point" else "decimal commas"
        return TableProblem(f"{noun} contains numbers {where}, but other columns have {other}", _drop(name))
    is_mixed = int(counts[is_text].sum()) < len(present) / 2
    if is_target and not (is_mixed and (len(counts) > MAX_GUESSED_TEXTS or config.task == "regression")):
        return None
    if 2 * sum(DATE.fullmatch(text) is not None for text in texts) > len(texts) and not is_mixed:
        return TableProblem(f"{noun} contains dates {where}", _drop(name))
    if is_mixed:
        if len(texts) <= MAX_MARKERS:
            rows = "" if len(present) == 1 else f"in {int(counts[is_text].sum())} of {len(present)} rows, "
            listed = ", ".join(repr(text)[:42] for text in texts)
            problem = f"{noun} contains text among its numbers: {listed} ({rows}first in data row {first + 1})"
            return TableProblem(problem, {"missing_values": texts, "missing": "drop" if is_target else "median"})
        problem = f"{noun} contains {len(texts)} different texts among its numbers {where}"
        return TableProblem(problem, {"missing_values": texts, "missing": "drop"} if is_target else _drop(name))
    if len(counts) > MAX_CATEGORIES or 2 * len(counts) > len(values):
        return TableProblem(f"column `{name}` contains text with {len(counts)} different values {where}", _drop(name))
    if config.encode is None:
        categories = "1 category" if len(counts) == 1 else f"{len(counts)} categories"
        return TableProblem(f"column `{name}` contains text with {categories} {where}", {"encode": "onehot"})
    return None


def _number_problem(name: str, values: np.ndarray) -> TableProblem | None:
    """Return the problem that prevents a column of numbers from being scaled, or None if it can be scaled."""
    infinite = np.isinf(values)
    if infinite.any():
        where = row_and_others(int(infinite.argmax()) + 1, int(infinite.sum()) - 1)
        answer = {"missing_values": _infinities(values), "missing": "median"}
        return TableProblem(f"column `{name}` has an infinite value in {where}", answer)
    present = values[~np.isnan(values)]
    if np.abs(present).max() > MAX_MAGNITUDE:
        row = int(np.nanargmax(np.abs(values)))
        return TableProblem(
            f"the value {values[row]:.6g} in data row {row + 1} of column `{name}` is too large", _drop(name)
        )
    if not is_constant(values):
        scaler = scaling.standard(present[:, None])
        if not (np.isfinite(scaler.factor).all() and np.isfinite(scaler.shift).all() and scaler.factor.all()):
            return TableProblem(f"column `{name}` cannot be scaled: its values are too close together", _drop(name))
    return None


def is_constant(values: np.ndarray) -> bool:
    """Return whether a column of numbers has the same value, or no value, in every row."""
    missing = np.isnan(values)
    return bool(missing.all() or (not missing.any() and values.max() == values.min()))


def identifies_rows(values: np.ndarray) -> bool:
    """Return whether a column has a different whole number in every row, like row numbers or IDs in any order.

    In addition, the range of the numbers must contain at most two whole numbers per row, which is rarely true of
    measurements. With fewer than NUMBERED_ROWS rows, the result is False.
    """
    if len(values) < NUMBERED_ROWS or not np.isfinite(values).all() or (values != np.floor(values)).any():
        return False
    return bool(np.ptp(values) < 2 * len(values) and len(np.unique(values)) == len(values))


def _infinities(values: np.ndarray) -> list[str]:
    return [text for text, infinity in (("inf", np.inf), ("-inf", -np.inf)) if (values == infinity).any()]


def _drop(name: str) -> dict[str, Any]:
    return {"drop": [name]}
