"""Reader of new rows for a model: a table in chunks, with columns matched by name to those of the training table.

The order of the columns does not matter; their names do. A missing or an unknown column is an error with a remedy,
because a prediction from a wrong column is not recognisable as wrong.
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
"""Numbers in a chunk: about 16 MB for any number of columns."""
MAX_CHUNK_ROWS = 50_000
MAX_LISTED_NAMES = 5


@dataclass(frozen=True)
class ColumnSpec:
    """The columns of a table that are read, and their use."""

    features: Sequence[str]
    """Names of the features in the model's order."""
    target: str | None = None
    """Read if ``needs_target``; otherwise the table may have it, and it is ignored."""
    needs_target: bool = False
    keep: Sequence[str] = ()
    """Columns that are copied as written."""
    ignore_extra: bool = False
    """Ignore columns that the model does not know, instead of refusing them."""

    @property
    def needed_target(self) -> list[str]:
        """The target as a list; empty where it is not read."""
        return [self.target] if self.needs_target and self.target is not None else []


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a table."""

    X: np.ndarray
    """Rows x features, float64, finite, in the model's order."""
    target: list[str] = field(default_factory=list)
    """The target's cells as written; empty where it is not read."""
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Cells of the columns that are copied, as written."""


class RowReader:
    """Reads a table of new rows from a file or from the standard input (``-``); the table has ``size`` bytes."""

    def __init__(self, source: str) -> None:
        self.name = "the standard input" if source == STANDARD_INPUT else source
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
            raise InputError(f"{self.name} is empty", "give a header line and rows")
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()

    @property
    def bytes_read(self) -> int:
        return self._file.tell()

    def chunks(self, columns: ColumnSpec) -> Iterator[Chunk]:
        """Yield the rows in order; only one chunk is in memory at a time."""
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
    """Return the numbers of a frame; the remedies of training do not apply, because the model needs every column."""
    try:
        X = csv_file.feature_matrix(frame[list(columns)])
        check_finite(X, columns, int(frame.index[0]) if len(frame) else 0)
    except InputError as error:
        raise InputError(error.problem, "write a number there (decimals with a point), or delete the row") from error
    return X


def check_columns(header: Collection[str], columns: ColumnSpec, name: str) -> None:
    """Refuse a table that lacks a column, or that has one which is neither used nor kept."""
    expected = {*columns.features, *columns.keep, *([columns.target] if columns.target else [])}
    extra = [column for column in header if column not in expected]
    missing = [column for column in columns.features if column not in header]
    if missing:
        remedy = "give all the columns of the training table: " + _quote_names(columns.features)
        if extra:
            hint = did_you_mean(missing[0], extra)
            similar = hint.removeprefix("did you mean ")[:-1]
            remedy = f"rename {similar}, if it is this column" if "did you" in hint else remedy
        raise InputError(f"{name} lacks the column {_quote_names(missing)}, which the model was trained on", remedy)
    for column in (*columns.needed_target, *columns.keep):
        if column not in header:
            raise InputError(f"{name} has no column `{column}`", did_you_mean(column, header))
    if extra and not columns.ignore_extra:
        raise InputError(
            f"{name} has the column {_quote_names(extra)}, which the model does not use",
            f"--keep {_shell_word(extra[0])} copies it to the output, --ignore-extra leaves such columns out",
        )


def check_finite(X: np.ndarray, columns: Sequence[str], first: int = 0) -> None:
    """Refuse cells without a finite number; ``first`` is the number of X's first row in the table, from 0."""
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
    rows = f"in data row {first + row + 1}" + (f" and {count - 1} more" if count > 1 else "")
    raise InputError(
        f"column `{columns[column]}` {fault} {rows}", "fill these cells in, or delete the rows or the column"
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
    """Copy a stream to a temporary file: the header is read more than once, and memory stays bounded."""
    with contextlib.ExitStack() as failed:
        spool: Any = failed.enter_context(tempfile.TemporaryFile())
        try:
            shutil.copyfileobj(file, spool)
        except OSError as error:
            raise InputError(f"cannot read the input: {error.strerror}", "give --data FILE") from error
        failed.pop_all()
    copy: BinaryIO = spool
    return copy


def _quote_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:MAX_LISTED_NAMES]) + more


def _shell_word(name: str) -> str:
    return f'"{name}"' if " " in name else name
