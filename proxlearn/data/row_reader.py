"""New rows for a model: a table read in pieces, its columns matched by name with those of the training table.

The order of the columns does not matter; their names do. A column that is missing, or that the model does not know, is
an error with a remedy, because a prediction from the wrong column looks like any other.
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
from proxlearn.files.user_paths import user_path

STANDARD_INPUT = "-"
MAX_CHUNK_CELLS = 2_000_000
"""Numbers of a piece: some 16 MB, whatever the number of columns."""
MAX_CHUNK_ROWS = 50_000
MAX_LISTED_NAMES = 5


@dataclass(frozen=True)
class ColumnSpec:
    """Which columns of a table are read, and as what."""

    features: Sequence[str]
    """In the model's order."""
    target: str | None = None
    """Read where ``needs_target``; otherwise it may be there, and is not looked at."""
    needs_target: bool = False
    keep: Sequence[str] = ()
    """Copied as they are written."""
    ignore_extra: bool = False


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows."""

    X: np.ndarray
    """Rows x features, float64, finite, in the model's order."""
    target: list[str] = field(default_factory=list)
    """The target's cells as they are written, if asked for."""
    kept: dict[str, list[str]] = field(default_factory=dict)


class RowReader:
    """A table of new rows: a file, or the standard input (``-``); ``done`` of ``size`` bytes have been read."""

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

    def chunks(self, wanted: ColumnSpec) -> Iterator[Chunk]:
        """The rows, in order; nothing is kept of a piece once the next one is asked for."""
        header, delimiter = csv_file.read_header(self.name, self._text, least=1)
        check_columns(header, wanted, self.name)
        size = max(1, min(MAX_CHUNK_ROWS, MAX_CHUNK_CELLS // len(header)))
        target = [wanted.target] if wanted.needs_target and wanted.target is not None else []
        texts = [*target, *wanted.keep]
        for frame in csv_file.read_frames(self.name, self._text, header, delimiter, size, texts):
            both = {name: csv_file.parse_text_column(frame[name]) for name in wanted.features if name in texts}
            yield Chunk(
                _feature_rows(frame.assign(**both) if both else frame, wanted.features),
                [cell for name in target for cell in frame[name].tolist()],
                {name: frame[name].tolist() for name in wanted.keep},
            )


def _feature_rows(frame: Any, columns: Sequence[str]) -> np.ndarray:
    """The numbers of a frame; what is wrong is as in training, but no column can be left out now."""
    try:
        X = csv_file.feature_matrix(frame[list(columns)])
        check_finite(X, columns, int(frame.index[0]) if len(frame) else 0)
    except InputError as error:
        raise InputError(error.problem, "write a number there (decimals with a point), or delete the row") from error
    return X


def check_columns(header: Collection[str], wanted: ColumnSpec, name: str) -> None:
    """Every column that is needed, and none that nobody asked for."""
    known = {*wanted.features, *wanted.keep, *([wanted.target] if wanted.target else [])}
    extra = [column for column in header if column not in known]
    missing = [column for column in wanted.features if column not in header]
    if missing:
        remedy = "give all the columns of the training table: " + _quote_names(wanted.features)
        if extra:
            near = did_you_mean(missing[0], extra)
            remedy = f"rename {near.removeprefix('did you mean ')[:-1]}, if that is it" if "did you" in near else remedy
        raise InputError(f"{name} lacks the column {_quote_names(missing)} that the model was trained on", remedy)
    needed = [wanted.target] if wanted.needs_target and wanted.target is not None else []
    for column in (*needed, *wanted.keep):
        if column not in header:
            raise InputError(f"{name} has no column `{column}`", did_you_mean(column, header))
    if extra and not wanted.ignore_extra:
        raise InputError(
            f"{name} has the column {_quote_names(extra)} that the model does not know",
            f"--keep {_shell_word(extra[0])} copies it to the output, --ignore-extra leaves such columns out",
        )


def check_finite(X: np.ndarray, columns: Sequence[str], first: int = 0) -> None:
    """Refuse cells that hold no finite number; ``first`` is the table's row that X begins with, from 0."""
    finite = np.isfinite(X)
    if finite.all():
        if (np.abs(X) > MAX_MAGNITUDE).any():
            row, column = (int(i) for i in np.argwhere(np.abs(X) > MAX_MAGNITUDE)[0])
            problem = f"column `{columns[column]}` holds {X[row, column]:.6g} in data row {first + row + 1}"
            raise InputError(f"{problem}, too large", OTHER_UNIT)
        return
    row, column = (int(i) for i in np.argwhere(~finite)[0])
    missing = "lacks a value" if np.isnan(X[row, column]) else "is infinite"
    count = int((~finite[:, column]).sum())
    rows = f"in data row {first + row + 1}" + (f" and {count - 1} more" if count > 1 else "")
    raise InputError(
        f"column `{columns[column]}` {missing} {rows}", "fill these cells in, or delete the rows or the column"
    )


def _open_seekable(path: Path) -> BinaryIO:
    try:
        file = path.open("rb")
        # A pipe, `--data <(...)`, is read once only.
        if file.seekable():
            return file
        with file:
            return _copy_to_disk(file)
    except FileNotFoundError as error:
        raise InputError(
            f"--data: no file {path}", f"relative paths start where the command did: {Path.cwd()}"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "name a readable .csv file") from error


def _copy_to_disk(file: BinaryIO) -> BinaryIO:
    """A copy on disk: the header is looked at more than once, and memory stays bounded."""
    with contextlib.ExitStack() as failed:
        spool: Any = failed.enter_context(tempfile.TemporaryFile())
        try:
            shutil.copyfileobj(file, spool)
        except OSError as error:
            raise InputError(f"cannot read what comes in: {error.strerror}", "give --data FILE") from error
        failed.pop_all()
    made: BinaryIO = spool
    return made


def _quote_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:MAX_LISTED_NAMES]) + more


def _shell_word(name: str) -> str:
    return f'"{name}"' if " " in name else name
