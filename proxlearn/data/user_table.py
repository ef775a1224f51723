"""The loader of a user's table in a file: ``dataset=csv dataset.path=my.csv dataset.target=label``.

If the table cannot be used unchanged, one error lists all of its problems and the settings that solve them. Rows are
left out, missing values are replaced and text is encoded only if such a setting requests it. A column with the same
value in every row carries no information and is left out with a notice.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from proxlearn.config.schema import DatasetConfig
from proxlearn.data import csv_file
from proxlearn.data.column_inspection import (
    Column,
    feature_problems,
    identifies_rows,
    infer_decimal,
    is_constant,
    parse_column,
    target_problems,
)
from proxlearn.data.csv_file import TableFormat, no_header_problem, parse_numeral, preamble_problem
from proxlearn.data.dataset_files import digest
from proxlearn.data.feature_encoding import MISSING_CATEGORY
from proxlearn.data.table import DatasetInfo, Table
from proxlearn.data.table_file import open_table, read_npz_table
from proxlearn.data.table_problems import SETTINGS, TableProblem, TableProblems, merge_settings
from proxlearn.data.target_encoding import TargetEncoding, infer_target, keep_spelling
from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.safe_read import unreadable_as_input_error, user_path
from proxlearn.printable_text import override_list, override_word
from proxlearn.terminal.streams import distinct_notices, notice, silent_notices

INFO = DatasetInfo(
    None,
    None,
    None,
    "your own table: dataset.path=FILE dataset.target=COLUMN",
    "yours",
    reads=("path", "target", "task", *SETTINGS),
)
LARGE_FILE = 50_000_000
"""Size in bytes above which a notice announces that the file is being read."""
MAX_LISTED_NAMES = 5
"""Maximum number of column names in a message; further columns are only counted."""
MAX_SUGGESTED_COLUMNS = 4
READING = ("decimal", "header", "skip_lines", "missing_values")
"""Settings that describe the format of the training table; new tables are read with the same settings."""
MAX_ROUNDS = 12
"""Maximum number of attempts to read a table; each attempt uses settings that solve the problems found earlier."""


def load(config: DatasetConfig) -> Table:
    """Load the table that a config describes; raise TableProblems if it has problems that settings can solve.

    To find all of its problems, including those that are hidden by others, the table is read again with the settings
    that solve the problems found so far. This also checks that the settings in the message work.
    """
    if config.path is None:
        target = " and dataset.target=COLUMN" if config.target is None else ""
        raise InputError("dataset=csv needs a file", f"give dataset.path=FILE{target}")
    path = user_path("dataset.path", config.path)
    content = _read_file(path)
    problems: list[TableProblem] = []
    settings: dict[str, Any] = {key: value for key in SETTINGS if (value := getattr(config, key)) is not None}
    attempt = config
    for _ in range(MAX_ROUNDS):
        notices: list[str] = []
        try:
            with distinct_notices() if attempt is config else silent_notices():
                table = _load(path, content, attempt, notices)
        except TableProblems as found:
            problems += found.problems
            if (more := merge_settings(settings, found.settings)) == settings:
                break
            settings = more
            attempt = replace(config, **settings)
        except InputError as error:
            if not problems:
                raise
            raise TableProblems(str(path), problems, error) from error
        else:
            # Also with other problems, because their solution would include the column.
            for name, values in zip(table.columns, table.X.T, strict=True):
                if identifies_rows(values):
                    notice(_id_notice(name))
            if not problems:
                for text in notices:
                    notice(text)
                return table
            break
    answered = [replace(problem, settings=_complete(problem.settings, settings)) for problem in problems]
    raise TableProblems(str(path), answered)


def _id_notice(name: str) -> str:
    flag = f"{override_list('dataset.drop', [name])}, or with `fit`: {shlex.join(['--drop', name])}"
    problem = f"column `{name}` has a different whole number in every row, like an ID"
    return f"{problem}; if it identifies the rows, drop it ({flag})"


def _complete(answer: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in ``answer``, each with its value in ``settings``, the merged settings for all problems."""
    return {key: settings.get(key, value) for key, value in answer.items()}


@dataclass(frozen=True)
class _RawTable:
    """The columns of a table as read from a file.

    For a text file, ``read_texts(name)`` returns the cells of a column as written in the file. For other files,
    ``read_texts`` is None.
    """

    columns: dict[str, Column]
    read_texts: Any = None


def _load(path: Path, content: bytes, config: DatasetConfig, notices: list[str]) -> Table:
    """Load the table with the settings of a config, and append notices for the user to ``notices``.

    Raise TableProblems with the problems that these settings do not solve.
    """
    form = table_format(config)
    raw, target_names = _read_columns(path, content, config, form)
    columns = dict(raw.columns)
    dropped = config.drop or ()
    for name in dropped:
        if name not in columns or name in target_names:
            remedy = did_you_mean(name, [column for column in columns if column not in target_names])
            raise InputError(f"dataset.drop: {path} has no feature column `{name}`", remedy)
    targets = {name: columns.pop(name) for name in target_names}
    features = {name: column for name, column in columns.items() if name not in dropped}
    uninformative = [name for name, column in features.items() if _carries_nothing(column)]
    if len(next(iter(targets.values())).values) < 2:
        raise InputError(
            f"{path} has fewer than two rows of data", "give at least one row for training and one for testing"
        )
    for name, column in targets.items():
        if column.missing.all():
            raise InputError(f"{path}: target column `{name}` has no value in any row", "choose another target column")
    if not features:
        raise InputError(
            f"{path} has no other column from which the target can be predicted",
            "add a column of numbers or a column with a few categories to the table",
        )
    if len(uninformative) == len(features):
        problem = f"{path}: {_describe_columns(uninformative)} the same value in every row"
        raise InputError(problem, "add a column whose values differ")
    features = {name: column for name, column in features.items() if name not in uninformative}
    used = {**targets, **features}
    decimal = infer_decimal(used.values(), form, is_text_file=raw.read_texts is not None)
    problems = [problem for name in targets for problem in target_problems(name, targets[name], config, form, decimal)]
    problems += feature_problems(features, config, form, decimal)
    if problems:
        raise TableProblems(str(path), problems)
    if uninformative:
        notices.append(f"{_describe_columns(uninformative)} the same value in every row and will not be used")
    kept = _kept_rows(targets, features, config, notices)
    if kept.sum() < 2:
        raise InputError(
            f"{path} has fewer than two rows without missing values",
            "use dataset.missing=median, or fill in the missing values",
        )
    encoding = _encode_targets(targets, raw, kept, config)
    if config.task is None:
        notices.append(f"{encoding.description}; to change this, set dataset.task=... or, with `fit`, --task")
    numbers = {name: column.values[kept] for name, column in features.items() if column.kind == "number"}
    texts = {name: _texts(column.values[kept]) for name, column in features.items() if column.kind == "text"}
    return Table(
        np.ascontiguousarray(np.column_stack(list(numbers.values()))) if numbers else np.empty((int(kept.sum()), 0)),
        encoding.target,
        tuple(numbers),
        encoding.task,
        digest(content),
        classes=encoding.classes,
        target_column=target_names[0] if len(target_names) == 1 else None,
        target_columns=tuple(target_names),
        texts=texts,
        missing=config.missing,
        reading={key: getattr(config, key) for key in READING},
        row_numbers=np.flatnonzero(kept) + 1,
        ignored=(*dropped, *uninformative),
    )


def table_format(config: DatasetConfig) -> TableFormat:
    """Return the format of the table that a config describes."""
    return TableFormat(config.decimal, config.header is not False, config.skip_lines or 0, config.bad_lines)


def _read_columns(path: Path, content: bytes, config: DatasetConfig, form: TableFormat) -> tuple[_RawTable, list[str]]:
    """Return all columns of a file and the names of the target columns."""
    targets = [] if config.target is None else [config.target] if isinstance(config.target, str) else [*config.target]
    markers = config.missing_values or ()
    if path.suffix.lower() == ".npz":
        if len(targets) > 1:
            raise InputError(f"{path}: an .npz file can have only one target", "give one column name as dataset.target")
        X, values, names, target = read_npz_table(path, content, targets[0] if targets else None)
        columns = {name: Column("number", X[:, i]) for i, name in enumerate(names)}
        target = target if target not in columns else f"{target} (target)"
        return _RawTable({**columns, target: _typed_target(values)}), [target]
    opened = open_table(io.BytesIO(content), path, form)
    read_texts = None
    if hasattr(opened, "readline"):
        file: TextIO = opened
        with file:
            header = csv_file.read_header(path, file, form=form)
            _check_targets(path, targets, header.names, csv_file.first_lines(file, header.delimiter, form.skip_lines))
            (frame,) = csv_file.read_frames(path, file, header, form=form)

        def read_texts(name: str) -> np.ndarray:
            with open_table(io.BytesIO(content), path) as again:
                return csv_file.read_column_texts(path, again, header, name, form)

    else:
        frame = opened
        first = frame.head(csv_file.FIRST_RECORDS).astype(object).map(lambda cell: "" if cell != cell else str(cell))
        lines = [(form.skip_lines + 1 + i, cells) for i, cells in enumerate(first.to_numpy().tolist())]
        _check_targets(path, targets, list(frame.columns), lines)
    columns = {name: parse_column(frame[name], form, markers) for name in frame.columns}
    for name in targets:
        if frame[name].dtype == bool or (read_texts is None and columns[name].kind == "number"):
            columns[name] = _typed_target(frame[name].to_numpy(), columns[name])
    return _RawTable(columns, read_texts), targets


def _typed_target(values: np.ndarray, parsed: Column | None = None) -> Column:
    """Return the target column of a file that stores data types; truth values and strings become class names."""
    if values.dtype == bool or values.dtype.kind == "U":
        return Column("text", values.astype(str).astype(object))
    if parsed is not None and values.dtype == object:
        missing = parsed.missing
        cells = [None if gap else str(value).strip() for value, gap in zip(values, missing, strict=True)]
        return Column("text", np.array(cells, dtype=object))
    return parsed or Column("number", values.astype(np.float64))


def _check_targets(path: Path, targets: list[str], names: list[str], lines: Iterable[tuple[int, list[str]]]) -> None:
    """Raise an error if no target is given, or if a target is not in ``names``, the column names of the table.

    ``lines`` yields, for each of the first records, the number of lines before the record, and its cells. If a later
    record contains all targets and no number, the error states that it is the header line.
    """
    if not targets:
        raise InputError("dataset=csv needs the name of the column to predict", _target_remedy(names))
    for target in targets:
        if target not in names:
            numerals = [name for name in names if parse_numeral(name) is not None]
            if 2 * len(numerals) >= len(names):
                raise TableProblems(str(path), [no_header_problem(names)])
            for number, cells in lines:
                is_header = {*targets} <= {*cells} and not any(parse_numeral(cell) is not None for cell in cells)
                if number and is_header:
                    raise TableProblems(str(path), [preamble_problem(names[0], number)])
            raise InputError(f"{path} has no column `{target}`", did_you_mean(target, names))


def _carries_nothing(column: Column) -> bool:
    """Return whether a column has the same value, or no value, in every row."""
    if column.kind == "number":
        return is_constant(column.values)
    missing = column.missing
    return bool(missing.all()) or (not missing.any() and len(set(map(str, column.values.tolist()))) == 1)


def _kept_rows(
    targets: Mapping[str, Column], features: Mapping[str, Column], config: DatasetConfig, notices: list[str]
) -> np.ndarray:
    """Return a mask of the rows that are used, and append notices on the other rows to ``notices``.

    A row is used if it has a value in every target column and, with missing=drop, in every feature column.
    """
    without_target = np.any([column.missing for column in targets.values()], axis=0)
    gaps = np.zeros_like(without_target)
    if config.missing == "drop":
        gaps = np.any([column.missing for column in features.values()], axis=0) & ~without_target
    if without_target.any():
        notices.append(f"rows without a target are left out: {int(without_target.sum())} of {len(gaps)}")
    if gaps.any():
        notices.append(f"rows with a missing value are left out: {int(gaps.sum())} of {len(gaps)}")
    kept: np.ndarray = ~(without_target | gaps)
    return kept


def _encode_targets(
    targets: Mapping[str, Column], raw: _RawTable, kept: np.ndarray, config: DatasetConfig
) -> TargetEncoding:
    """Encode a single target column as classes or numbers, or several target columns as numbers."""
    if len(targets) == 1:
        ((name, column),) = targets.items()
        values = column.values[kept]
        if column.kind != "number":
            values = values.astype(str)
        elif raw.read_texts is not None:
            values = keep_spelling(values, lambda: raw.read_texts(name)[kept], config.task)
        return infer_target(values, name, config.task, np.flatnonzero(kept) + 1)
    if config.task not in (None, "regression"):
        raise InputError(
            f"dataset.task={config.task} does not support several targets",
            "give one dataset.target, or leave out dataset.task",
        )
    for name, column in targets.items():
        if column.kind != "number":
            remedy = f"leave `{name}` out of dataset.target, because several targets must all be numbers"
            raise InputError(f"target column `{name}` contains text", remedy)
        infer_target(column.values[kept], name, "regression", np.flatnonzero(kept) + 1)
    listed = ", ".join(f"`{name}`" for name in targets)
    return TargetEncoding(
        "regression",
        np.column_stack([column.values[kept] for column in targets.values()]),
        (),
        f"columns {listed} are treated as real-valued targets (regression)",
    )


def _texts(values: np.ndarray) -> np.ndarray:
    return np.array([MISSING_CATEGORY if value is None else value for value in values.tolist()], dtype=object)


def _read_file(path: Path) -> bytes:
    with unreadable_as_input_error("dataset.path", path, ".csv, .npz, .parquet or .xlsx"):
        if path.stat().st_size > LARGE_FILE:
            notice(f"reading {path} ({path.stat().st_size / 1e6:.0f} MB)")
        content = path.read_bytes()
    if not content.strip():
        raise InputError(f"{path} is empty", "give a table with a header line and at least two rows")
    return content


def _describe_columns(names: list[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:MAX_LISTED_NAMES])
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return f"column {listed} has" if len(names) == 1 else f"columns {listed}{more} have"


def _target_remedy(header: list[str]) -> str:
    """Return a hint with overrides that set the target, starting with the last column, which is often the target."""
    words = [override_word("dataset.target", name) for name in header[: -MAX_SUGGESTED_COLUMNS - 1 : -1]]
    more = f", or another of the {len(header)} columns of the table" if len(header) > MAX_SUGGESTED_COLUMNS else ""
    return "give " + " or ".join(words) + more
