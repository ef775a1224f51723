"""Read text tables with a header line, whose fields are separated by commas, semicolons, tabs or vertical bars."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from proxlearn.config.quoting import override_word
from proxlearn.data.numerals import parse_numeral
from proxlearn.errors import InputError, did_you_mean

DELIMITERS = ",;\t|"
MAX_ONE_HOT = 20
MISSING_VALUES = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Strings that pandas reads as missing values. In a column that is kept as text, no cell counts as missing."""
MAX_SUGGESTED_COLUMNS = 4


def read_table(path: Path, content: bytes, target: str | None) -> tuple[np.ndarray, np.ndarray, list[str], str]:
    """Return the features, the target values, the feature names and the target name; missing features are NaN."""
    file = open_text(io.BytesIO(content))
    header, delimiter = read_header(path, file)
    if target is None:
        raise InputError("dataset=csv needs the name of the column to predict", _target_remedy(header))
    if target not in header:
        raise InputError(f"{path} has no column `{target}`", did_you_mean(target, header))
    (frame,) = read_frames(path, file, header, delimiter)
    values = _target_values(frame.pop(target), target)
    return feature_matrix(frame), values, list(frame.columns), target


def read_target_texts(path: Path, content: bytes, target: str) -> np.ndarray:
    """Return the cells of the target column as strings, exactly as written in a table that ``read_table`` accepts."""
    file = open_text(io.BytesIO(content))
    header, delimiter = read_header(path, file)
    frame = _read_csv(path, file, delimiter, usecols=[header.index(target)], dtype=str, keep_default_na=False)
    texts: np.ndarray = frame.iloc[:, 0].to_numpy(dtype=object)
    return texts


def open_text(file: BinaryIO) -> TextIO:
    """Return a text stream that decodes UTF-8, with or without a byte order mark, and leaves line ends unchanged."""
    return io.TextIOWrapper(file, encoding="utf-8-sig", newline="")


def read_header(path: Path | str, file: TextIO, least: int = 2) -> tuple[list[str], str]:
    """Return the column names and the delimiter, and move the file position back to the start.

    The delimiter is the one that yields the most columns. Raise InputError if there are fewer than ``least`` columns,
    if a name is empty or repeated, or if all names are numbers.
    """
    try:
        records = {delimiter: _first_record(file, delimiter) for delimiter in DELIMITERS}
    except UnicodeDecodeError as error:
        raise _encoding_error(path, error) from error
    except csv.Error as error:
        raise InputError(f"{path} is not a text table: {error}", "save it as a .csv file in UTF-8") from error
    delimiter = max(records, key=lambda candidate: len(records[candidate]))
    header = records[delimiter]
    if len(header) < least:
        raise InputError(
            f"{path} has only one column, `{''.join(header)[:60]}`",
            "separate the columns with commas, semicolons, tabs or |",
        )
    for position, name in enumerate(header):
        if not name.strip():
            raise InputError(
                f"{path}: column {position + 1} has no name",
                "name or delete the column (pandas: to_csv(..., index=False))",
            )
        if name in header[:position]:
            raise InputError(f"{path}: two columns are called `{name}`", "rename or delete one of them")
    if all(parse_numeral(name) is not None for name in header):
        raise InputError(f"{path}: the first line holds numbers, not column names", "add a header line")
    return header, delimiter


def read_frames(
    path: Path | str,
    file: TextIO,
    header: list[str],
    delimiter: str,
    rows: int | None = None,
    texts: Collection[str] = (),
) -> Iterator[Any]:
    """Yield the table as pandas data frames of at most ``rows`` rows, or as one data frame if ``rows`` is None.

    The index counts the rows of the whole table from 0. The columns in ``texts`` keep each cell as written; in the
    other columns, missing cells are NaN.
    """
    import pandas as pd

    table = _read_csv(
        path,
        file,
        delimiter,
        low_memory=False,
        chunksize=rows,
        dtype=dict.fromkeys(texts, str),
        keep_default_na=not texts,
        na_values={name: MISSING_VALUES for name in header if name not in texts} if texts else None,
        # In a table with one column, an empty line is a row with an empty cell.
        skip_blank_lines=len(header) > 1,
        header=0 if len(header) > 1 else _lines_before_header(file),
    )
    parsed_frames: Iterator[Any] = iter(table if rows else [table])
    while True:
        with _pandas_errors_as_input_error(path):
            frame = next(parsed_frames, None)
        if frame is None:
            return
        if len(frame.columns) != len(header):
            raise InputError(f"{path}: the header line is ambiguous", "put quotes around whole names only")
        frame.columns = pd.Index(header)
        yield frame


def _read_csv(path: Path | str, file: TextIO, delimiter: str, **options: Any) -> Any:
    """Call ``pandas.read_csv`` with ``options`` and with the options that all tables share."""
    import pandas as pd

    with _pandas_errors_as_input_error(path):
        return pd.read_csv(file, sep=delimiter, skipinitialspace=True, index_col=False, **options)


@contextlib.contextmanager
def _pandas_errors_as_input_error(path: Path | str) -> Iterator[None]:
    """Convert decoding errors and the parsing errors and warnings of pandas inside the block to InputError."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            # pandas only warns if it drops surplus fields.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UnicodeDecodeError as error:
        raise _encoding_error(path, error) from error
    except pd.errors.ParserWarning as error:
        raise InputError(f"{path}: some rows have more fields than the header", "name every column") from error
    except pd.errors.ParserError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("Error tokenizing data. C error: ")
        raise InputError(f"{path} cannot be read as a table: {reason}", "correct that line or its quotes") from error


def _first_record(file: TextIO, delimiter: str) -> list[str]:
    records = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
    first = next((record for record in records if record), [])
    file.seek(0)
    return first


def _lines_before_header(file: TextIO) -> int:
    """Return the number of empty lines before the header line, and move the file position back to the start."""
    count = next((i for i, line in enumerate(file) if line.strip("\r\n")), 0)
    file.seek(0)
    return count


def parse_text_column(series: Any) -> Any:
    """Convert a column of strings to the type that pandas infers, with NaN for missing cells."""
    import pandas as pd

    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([cell] for cell in ["column", *series.tolist()])
    text.seek(0)
    column = pd.read_csv(text, skipinitialspace=True, low_memory=False).iloc[:, 0]
    return column.set_axis(series.index)


def _target_values(series: Any, name: str) -> np.ndarray:
    missing = series.isna().to_numpy()
    if missing.any():
        raise InputError(
            f"target column `{name}` lacks a value in {row_and_others(missing.argmax() + 1, missing.sum() - 1)}",
            "fill in every missing value, or delete its row (empty, NA, NaN, null and None count as missing)",
        )
    values: np.ndarray = series.to_numpy() if series.dtype.kind in "biuf" else series.to_numpy(dtype=object).astype(str)
    return values


def row_and_others(row: int, others: int) -> str:
    """Return a phrase that names a data row, counted from 1, and the number of other rows with the same fault."""
    return f"data row {row}" + (f" and {others} other {'row' if others == 1 else 'rows'}" if others else "")


def feature_matrix(frame: Any) -> np.ndarray:
    """Return the features as a float64 matrix; raise an InputError that names the column if one is not numeric."""
    for name in frame.columns if len(frame) else ():
        if frame[name].dtype.kind not in "biuf":
            raise _text_column_error(frame[name].dropna(), name)
    matrix: np.ndarray = np.ascontiguousarray(frame.to_numpy(dtype=np.float64))
    return matrix


def _text_column_error(series: Any, name: str) -> InputError:
    texts = series[[parse_numeral(str(value)) is None for value in series]]
    if len(texts) == 0:
        return InputError(
            f"column `{name}` holds numbers beyond the range of float64", "correct these numbers, or delete the column"
        )
    first, row = str(texts.iloc[0]), texts.index[0] + 1
    categories = series.nunique()
    if re.fullmatch(r"\s*[-+]?[\d.]*,\d+\s*", first):
        remedy = "write decimals with a point"
    elif len(texts) < len(series) / 2:
        remedy = "correct every such cell, or delete its row or the column"
    elif categories <= MAX_ONE_HOT:
        remedy = f"replace it with 0/1 columns, one for each of its {categories} categories, or delete it"
    else:
        remedy = "convert it to numbers, or delete it"
    return InputError(f"column `{name}` is not numeric: {first[:40]!r} in data row {row}", remedy)


def _target_remedy(header: list[str]) -> str:
    """Return a hint with overrides that set the target, starting with the last column, which is often the target."""
    words = [override_word("dataset.target", name) for name in header[: -MAX_SUGGESTED_COLUMNS - 1 : -1]]
    more = f", or another of its {len(header)} columns" if len(header) > MAX_SUGGESTED_COLUMNS else ""
    return "give " + " or ".join(words) + more


def _encoding_error(path: Path | str, error: UnicodeDecodeError) -> InputError:
    return InputError(
        f"{path} is not UTF-8 text (byte 0x{error.object[error.start]:02x})", "save it as a .csv file in UTF-8"
    )
