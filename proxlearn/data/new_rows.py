"""Read new rows for a model in chunks, and match their columns by name to those of the training table.

The columns may be in any order. A missing or unknown column is an error, because a prediction from a wrong column
cannot be recognised as wrong.
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
from proxlearn.data.magnitude import MAX_MAGNITUDE, OTHER_UNIT
from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.user_paths import unreadable_as_input_error, user_path

STANDARD_INPUT = "-"
MAX_CHUNK_CELLS = 2_000_000
"""Maximum number of cells in a chunk; they take about 16 MB."""
MAX_CHUNK_ROWS = 50_000
MAX_LISTED_NAMES = 5


@dataclass(frozen=True)
class ColumnSpec:
    """The columns to read from a table, and how each of them is used."""

    features: Sequence[str]
    """Names of the features, in the order that the model expects."""
    target: str | None = None
    """Name of the target column; if ``needs_target`` is False, the table may contain it, but it is ignored."""
    needs_target: bool = False
    keep: Sequence[str] = ()
    """Names of the columns that are copied to the output as written."""
    ignore_extra: bool = False
    """Whether columns that the model does not use are ignored; otherwise they are an error."""

    @property
    def needed_target(self) -> list[str]:
        """A list with the name of the target, or an empty list if the target is not read."""
        return [self.target] if self.needs_target and self.target is not None else []


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a table."""

    X: np.ndarray
    """Features in the order that the model expects, rows x features, float64 and finite."""
    target: list[str] = field(default_factory=list)
    """Cells of the target column as written; empty if the target is not read."""
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Cells, as written, of each column that is copied to the output."""


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
        self._text = csv_file.open_text(self._file)
        if self.size == 0:
            self._text.close()
            raise InputError(f"{self.name} is empty", "give a header line and at least one row")
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()

    @property
    def bytes_read(self) -> int:
        return self._file.tell()

    def chunks(self, columns: ColumnSpec) -> Iterator[Chunk]:
        """Yield the rows in order, in chunks; only one chunk is in memory at a time."""
        header, delimiter = csv_file.read_header(self.name, self._text, least=1)
        check_columns(header, columns, self.name)
        size = max(1, min(MAX_CHUNK_ROWS, MAX_CHUNK_CELLS // len(header)))
        texts = [*columns.needed_target, *columns.keep]
        for frame in csv_file.read_frames(self.name, self._text, header, delimiter, size, texts):
            parsed = {name: csv_file.parse_text_column(frame[name]) for name in columns.features if name in texts}
            yield Chunk(
                _feature_rows(frame.assign(**parsed) if parsed else frame, columns.features),
                [cell for name in columns.needed_target for cell in frame[name].tolist()],
                {name: frame[name].tolist() for name in columns.keep},
            )


def _feature_rows(frame: Any, columns: Sequence[str]) -> np.ndarray:
    """Return the features of a data frame as a matrix; raise InputError if a cell is not a finite number.

    The remedies that these errors suggest in training do not apply here, because the model needs every column.
    """
    try:
        X = csv_file.feature_matrix(frame[list(columns)])
        check_finite(X, columns, int(frame.index[0]) if len(frame) else 0)
    except InputError as error:
        raise InputError(
            error.problem, "write a number in every row (decimals with a point), or delete the rows without one"
        ) from error
    return X


def check_columns(header: Collection[str], columns: ColumnSpec, name: str) -> None:
    """Raise InputError if a table lacks a needed column, or has one that is neither used, kept nor ignored."""
    expected = {*columns.features, *columns.keep, *([columns.target] if columns.target else [])}
    extra = [column for column in header if column not in expected]
    missing = [column for column in columns.features if column not in header]
    if missing:
        remedy = "give all the columns of the training table: " + _quote_names(columns.features)
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


def check_finite(X: np.ndarray, columns: Sequence[str], first: int = 0) -> None:
    """Raise InputError if a cell of X is missing, infinite or too large.

    ``first`` is the index of the first row of X in the whole table, which is needed for the row number in the message.
    """
    finite = np.isfinite(X)
    if finite.all():
        if (np.abs(X) > MAX_MAGNITUDE).any():
            row, column = (int(i) for i in np.argwhere(np.abs(X) > MAX_MAGNITUDE)[0])
            problem = f"column `{columns[column]}` holds {X[row, column]:.6g} in data row {first + row + 1}"
            raise InputError(f"{problem}, which is too large", OTHER_UNIT)
        return
    row, column = (int(i) for i in np.argwhere(~finite)[0])
    fault = "lacks a value" if np.isnan(X[row, column]) else "has an infinite value"
    count = int((~finite[:, column]).sum())
    rows = csv_file.row_and_others(first + row + 1, count - 1)
    raise InputError(
        f"column `{columns[column]}` {fault} in {rows}",
        "write a finite number in every row, delete the rows without one, or delete the column",
    )


def _open_seekable(path: Path) -> BinaryIO:
    with unreadable_as_input_error("--data", path, ".csv"):
        file: BinaryIO = path.open("rb")
        # A pipe, `--data <(...)`, can be read only once.
        if not file.seekable():
            with file as pipe:
                file = _copy_to_disk(pipe)
    return file


def _copy_to_disk(file: BinaryIO) -> BinaryIO:
    """Copy a stream to a temporary file, because the header is read twice and memory use must stay bounded."""
    with contextlib.ExitStack() as failed:
        spool: Any = failed.enter_context(tempfile.TemporaryFile())
        try:
            shutil.copyfileobj(file, spool)
        except OSError as error:
            raise InputError(f"cannot read the input: {error.strerror}", "give --data FILE") from error
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
