"""Read new rows for a model in chunks, and match their columns by name to those of the training table.

The columns may be in any order. A missing column is an error. An unknown column is also an error unless the user asks
to copy or ignore it; otherwise, a prediction from the wrong columns would not be noticed.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from proxlearn.data import csv_file
from proxlearn.data.column_inspection import COMMA_NUMBER, Column, parse_column, parse_number, without_unit
from proxlearn.data.csv_file import TableFormat
from proxlearn.data.feature_encoding import MISSING_CATEGORY, FeatureEncoder
from proxlearn.data.scaling import MAX_MAGNITUDE, OTHER_UNIT
from proxlearn.data.table_file import open_table
from proxlearn.data.table_problems import TableProblems
from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.safe_read import unreadable_as_input_error, user_path
from proxlearn.terminal.streams import notice

STANDARD_INPUT = "-"
MAX_CHUNK_CELLS = 2_000_000
"""Maximum number of cells in a chunk; they take about 16 MB."""
MAX_CHUNK_ROWS = 50_000
MAX_LISTED_NAMES = 5


@dataclass(frozen=True)
class RowEncoder:
    """An encoder that converts a new table to features in the same way as the training table was converted."""

    encoder: FeatureEncoder
    form: TableFormat = field(default_factory=TableFormat)
    missing_values: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the columns that the model reads."""
        return (*self.encoder.numbers, *self.encoder.categories)

    def encode(self, frame: Any, first: int = 0) -> tuple[np.ndarray, np.ndarray, int]:
        """Convert the rows of a data frame to features; raise InputError if a cell cannot be used.

        Return the features of the rows that can be predicted, a mask of these rows, and the number of rows with a
        category that does not occur in the training rows. If the model was trained with missing=drop, rows with a
        missing value are not predicted. ``first`` is the index of the first row of ``frame`` in the whole table.
        """
        columns = {name: parse_column(frame[name], self.form, self.missing_values) for name in self.inputs}
        complete = np.ones(len(frame), dtype=bool)
        if self.encoder.missing == "drop":
            complete = ~np.any([column.missing for column in columns.values()], axis=0)
        numbers = [self._numbers(name, columns[name], first)[complete] for name in self.encoder.numbers]
        texts = {name: _category_texts(frame[name], columns[name])[complete] for name in self.encoder.categories}
        row_numbers = first + np.flatnonzero(complete) + 1
        unknown = self.encoder.unknown(texts)
        unseen = int(np.any(list(unknown.values()), axis=0).sum()) if unknown else 0
        for name, mask in unknown.items():
            row = int(mask.argmax())
            if texts[name][row] == MISSING_CATEGORY and self.encoder.missing is None:
                raise InputError(f"column `{name}` lacks a value in data row {row_numbers[row]}", FILL_IN)
            value = f"{texts[name][row]!r:.42}"
            notice(f"column `{name}` contains {value}, which does not occur in the training rows; {UNKNOWN}")
        matrix = np.column_stack(numbers) if numbers else np.empty((int(complete.sum()), 0))
        accepts_gaps = self.encoder.missing in ("median", "indicator")
        filled = np.where(np.isnan(matrix), 0.0, matrix) if accepts_gaps else matrix
        check_finite(filled, self.encoder.numbers, row_numbers)
        return self.encoder.transform(matrix, texts), complete, unseen

    def _numbers(self, name: str, column: Column, first: int) -> np.ndarray:
        if column.kind == "number":
            return column.values
        texts = [None if value is None else str(value) for value in column.values]
        row = next(i for i, text in enumerate(texts) if text is not None and parse_number(text, self.form) is None)
        text, remedy = str(texts[row]), NO_GAPS
        if self.encoder.missing is not None:
            marked = "".join(f" or the marker {marker!r}" for marker in self.missing_values)
            remedy = f"{NO_GAPS}; for a missing value, leave an empty cell{marked}"
        if self.form.decimal is None and COMMA_NUMBER.fullmatch(without_unit(text)):
            remedy += ", or add --decimal comma"
        elif self.form.decimal is None and parse_number(text, TableFormat("point")) is not None:
            remedy += ", or add --decimal point"
        elif self.form.decimal == "comma" and parse_number(text, TableFormat()) is not None:
            remedy = "add --decimal point for this table, because the model was trained with decimal commas"
        problem = f"the value {texts[row]!r:.42} in data row {first + row + 1} of column `{name}` is not a number"
        raise InputError(problem, remedy)


NO_GAPS = "write a number in every row (with a decimal point), or delete the rows without a number"
FILL_IN = "write a category in every row, or delete the rows without a category"
UNKNOWN = "all categories that do not occur there are encoded as 0 in every feature of the column"


def _category_texts(series: Any, column: Column) -> np.ndarray:
    """Return the cells of a column of categories as strings without surrounding blanks.

    Missing cells become ``MISSING_CATEGORY``.
    """
    missing = column.missing
    cells = (MISSING_CATEGORY if gap else str(cell).strip() for cell, gap in zip(series, missing, strict=True))
    return np.array(list(cells), dtype=object)


@dataclass(frozen=True)
class ColumnSpec:
    """The columns to read from a table, and how each of them is used."""

    rows: RowEncoder
    """The columns that the model reads, and their encoding as features."""
    targets: Sequence[str] = ()
    """Names of the target columns; if ``needs_target`` is False, the table may contain them, but they are ignored."""
    needs_target: bool = False
    keep: Sequence[str] = ()
    """Names of the columns that are copied to the output as written."""
    ignore_extra: bool = False
    """Whether columns that the model does not use are ignored; otherwise, they are an error."""

    @property
    def features(self) -> Sequence[str]:
        """The names of the columns that the model reads."""
        return self.rows.inputs

    @property
    def needed_target(self) -> list[str]:
        """The names of the targets, or an empty list if the targets are not read."""
        return [*self.targets] if self.needs_target else []


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a table."""

    X: np.ndarray
    """Features in the order that the model expects, rows x features, float64 and finite."""
    target: list[str] = field(default_factory=list)
    """Cells of the (first) target column in the rows of ``X``, as written; empty if the target is not read."""
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Cells of each column that is copied to the output, as written, by column name."""
    complete: np.ndarray | None = None
    """Mask of the rows of the chunk that are in ``X``; None if ``X`` contains all rows of the chunk."""
    further_targets: dict[str, list[str]] = field(default_factory=dict)
    """Cells of the other target columns, by column name, if there are several target columns."""
    unseen: int = 0
    """Number of rows of ``X`` with a category that does not occur in the training rows."""
    first: int = 0
    """Index of the first row of the chunk in the whole table."""

    @property
    def row_numbers(self) -> np.ndarray:
        """The numbers of the rows of ``X`` in the whole table, counted from 1."""
        indices = np.arange(len(self.X)) if self.complete is None else np.flatnonzero(self.complete)
        return self.first + indices + 1


class RowReader:
    """A context manager that reads a table of new rows from a file, or from standard input if ``source`` is ``-``.

    Inside the ``with`` block, ``size`` is the number of bytes of the table.
    """

    def __init__(self, source: str) -> None:
        self.name = "standard input" if source == STANDARD_INPUT else source
        self._source = source

    def __enter__(self) -> RowReader:
        self._file = (
            _copy_to_disk(sys.stdin.buffer)
            if self._source == STANDARD_INPUT
            else _open_seekable(user_path("--data", self._source))
        )
        self.size = self._file.seek(0, 2)
        self._file.seek(0)
        try:
            if self.size == 0:
                raise InputError(f"{self.name} is empty", "give a table with a header line and at least one row")
            self._table: Any = open_table(self._file, self.name)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self._table, "readline"):
            # A compressed table is read from a temporary file.
            self._table.close()
        self._file.close()

    @property
    def bytes_read(self) -> int:
        """The number of bytes read so far, or the size of the table if it is compressed or was loaded as a whole."""
        text = getattr(self._table, "buffer", None)
        return self._file.tell() if text is self._file else self.size

    def chunks(self, columns: ColumnSpec) -> Iterator[Chunk]:
        """Yield the rows of the table in order, in chunks; only one chunk of a text table is in memory at a time."""
        try:
            yield from self._chunks(columns)
        except TableProblems as error:
            # The settings in the remedy are those of a training table.
            bad_lines = "delete the surplus fields of these lines, or delete the lines"
            names = "write the column names in the first line of the table"
            remedy = bad_lines if "bad_lines" in error.settings else names
            raise InputError(error.problem, remedy) from error

    def _chunks(self, columns: ColumnSpec) -> Iterator[Chunk]:
        texts = [*columns.needed_target, *columns.keep]
        for frame in self._frames(columns, texts):
            # The columns that are copied to the output keep their spelling, even if they are features.
            form = columns.rows.form
            parsed = {name: csv_file.parse_text_column(frame[name], form) for name in columns.features if name in texts}
            first = int(frame.index[0]) if len(frame) else 0
            X, complete, unseen = columns.rows.encode(frame.assign(**parsed) if parsed else frame, first)
            cells = {name: np.array(frame[name], dtype=object)[complete].tolist() for name in columns.needed_target}
            yield Chunk(
                X,
                cells.pop(columns.needed_target[0]) if cells else [],
                {name: frame[name].tolist() for name in columns.keep},
                None if complete.all() else complete,
                cells,
                unseen,
                first,
            )

    def _frames(self, columns: ColumnSpec, texts: Sequence[str]) -> Iterator[Any]:
        """Yield the rows as data frames; the columns in ``texts`` contain strings."""
        if not hasattr(self._table, "readline"):
            frame = self._table
            if columns.rows.form.skip_lines or not columns.rows.form.header:
                self._file.seek(0)
                frame = open_table(self._file, self.name, columns.rows.form)
            check_columns(list(frame.columns), columns, self.name)
            frame = frame.assign(**{name: frame[name].map(_cell_text) for name in texts})
            size = max(1, min(MAX_CHUNK_ROWS, MAX_CHUNK_CELLS // len(frame.columns)))
            yield from (frame.iloc[start : start + size] for start in range(0, max(1, len(frame)), size))
            return
        form = columns.rows.form
        header = csv_file.read_header(self.name, self._table, least=1, form=form)
        check_columns(header.names, columns, self.name)
        size = max(1, min(MAX_CHUNK_ROWS, MAX_CHUNK_CELLS // len(header.names)))
        yield from csv_file.read_frames(self.name, self._table, header, size, texts, form)


def _cell_text(cell: Any) -> str:
    """Return a cell of a typed table as a string; a missing cell is empty."""
    return "" if cell is None or cell != cell else str(cell)


def check_columns(header: Collection[str], columns: ColumnSpec, name: str) -> None:
    """Raise InputError if a table lacks a required column, or has an unknown column although ``ignore_extra`` is False.

    Known columns are the features, the targets, the columns that are copied to the output, and the columns of the
    training table that the model ignores. ``header`` contains the column names; ``name`` denotes the table in messages.
    """
    expected = {*columns.features, *columns.keep, *columns.targets, *columns.rows.encoder.ignored}
    extra = [column for column in header if column not in expected]
    missing = [column for column in columns.features if column not in header]
    if missing:
        remedy = "give all feature columns of the training table: " + _quote_names(columns.features)
        if extra:
            hint = did_you_mean(missing[0], extra)
            similar = hint.removeprefix("did you mean ")[:-1]
            renaming = f"rename {similar} to `{missing[0]}` if they are the same column"
            remedy = renaming if "did you" in hint else remedy
        raise InputError(f"{name} lacks the {_quote_columns(missing)}, which the model was trained on", remedy)
    for column in (*columns.needed_target, *columns.keep):
        if column not in header:
            raise InputError(f"{name} has no column `{column}`", did_you_mean(column, header))
    if extra and not columns.ignore_extra:
        raise InputError(
            f"{name} has the {_quote_columns(extra)}, which the model does not use",
            f"add --keep {_shell_word(extra[0])} to copy that column to the output, or --ignore-extra to ignore all "
            "columns that the model does not use",
        )


def check_finite(X: np.ndarray, columns: Sequence[str], row_numbers: np.ndarray) -> None:
    """Raise InputError if a cell of X is missing, infinite or too large.

    ``row_numbers`` contains the numbers of the rows of X in the whole table, counted from 1.
    """
    finite = np.isfinite(X)
    if finite.all():
        if (np.abs(X) > MAX_MAGNITUDE).any():
            row, column = (int(i) for i in np.argwhere(np.abs(X) > MAX_MAGNITUDE)[0])
            problem = f"the value {X[row, column]:.6g} in data row {row_numbers[row]} of column `{columns[column]}`"
            raise InputError(f"{problem} is too large", OTHER_UNIT)
        return
    row, column = (int(i) for i in np.argwhere(~finite)[0])
    fault = "lacks a value" if np.isnan(X[row, column]) else "has an infinite value"
    count = int((~finite[:, column]).sum())
    rows = csv_file.row_and_others(int(row_numbers[row]), count - 1)
    # The model needs every column, so deleting the column is not a remedy.
    raise InputError(f"column `{columns[column]}` {fault} in {rows}", NO_GAPS)


def _open_seekable(path: Path) -> BinaryIO:
    with unreadable_as_input_error("--data", path, ".csv"):
        file: BinaryIO = path.open("rb")
        # A pipe, as in `--data <(...)`, can be read only once.
        if not file.seekable():
            with file as pipe:
                file = _copy_to_disk(pipe)
    return file


def _copy_to_disk(file: BinaryIO) -> BinaryIO:
    """Copy a stream to a temporary file, in which the header can be read twice without loading the whole table."""
    with contextlib.ExitStack() as failed:
        spool: Any = failed.enter_context(tempfile.TemporaryFile())
        try:
            shutil.copyfileobj(file, spool)
        except OSError as error:
            raise InputError(f"cannot read the table: {error.strerror}", "give a file with --data FILE") from error
        failed.pop_all()
    copy: BinaryIO = spool
    return copy


def _quote_columns(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {_quote_names(names)}"


def _quote_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:MAX_LISTED_NAMES]) + more


def _shell_word(name: str) -> str:
    return f'"{name}"' if " " in name else name
