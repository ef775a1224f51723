"""Read text tables, whose fields are separated by commas, semicolons, tabs, vertical bars or blanks."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from proxlearn.data.table_problems import TableProblem, TableProblems
from proxlearn.errors import InputError
from proxlearn.terminal.streams import notice


def parse_numeral(text: str) -> float | None:
    """Return the number that ``text`` denotes, or None if it does not denote a number."""
    if not text.isascii() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


DELIMITERS = ",;\t|"
BLANKS = r"\s+"
MISSING_VALUES = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Strings that pandas reads as missing values, except in columns that are read as text."""
FIRST_RECORDS = 50
"""Number of records at the start of a file from which its layout is inferred."""
MAX_LISTED_LINES = 8


@dataclass(frozen=True)
class TableFormat:
    """The properties of a table's format that are not inferred from the file itself."""

    decimal: Literal["comma", "point"] | None = None
    """How numbers are written: comma (1.234,5), point (1,234.5 or 1234.5) or None (only 1234.5)."""
    header: bool = True
    skip_lines: int = 0
    """Number of lines before the header line."""
    bad_lines: Literal["drop"] | None = None
    """Treatment of lines with too many fields: drop (they are left out) or None (they are an error)."""


@dataclass(frozen=True)
class Header:
    """The column names and the layout of a text table."""

    names: list[str]
    delimiter: str
    replaces: bool
    """Whether some names differ from those in the file, because the file lacks names or repeats them."""


def read_header(path: Path | str, file: TextIO, least: int = 2, form: TableFormat | None = None) -> Header:
    """Return the column names and the delimiter, and move the file position back to the start.

    The delimiter is the one that yields the most columns. A column without a name is named after its position, and a
    number is added to a repeated name. Raise InputError if there are fewer than ``least`` columns, and TableProblems if
    the first line is not a header line.
    """
    form = form or TableFormat()
    try:
        records = {delimiter: _first_records(file, delimiter, form.skip_lines) for delimiter in DELIMITERS}
        delimiter = max(records, key=lambda candidate: len(records[candidate][0]) if records[candidate] else 0)
        first = records[delimiter][0] if records[delimiter] else []
        if len(first) == 1:
            blanks = _first_records(file, BLANKS, form.skip_lines)
            if len(blanks) > 1 and len(blanks[0]) > 1 and all(len(record) == len(blanks[0]) for record in blanks[1:]):
                delimiter, first, records[BLANKS] = BLANKS, blanks[0], blanks
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {error.reason}", "save it as a .csv file in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path} is not a text table: {error}", "save it as a .csv file in UTF-8") from error
    if re.match(r"[\[{]\s*[\[{\"]", "".join(first)):
        raise InputError(f"{path} is a JSON file, not a table", "save it as a .csv file")
    if len(first) < max(2, least):
        _refuse_preamble(path, file, records, form)
    if len(first) < least:
        problem = f"{path} has only one column, `{''.join(first)[:60]}`"
        raise InputError(problem, "separate the columns with commas, semicolons, tabs or |")
    if not form.header:
        return Header([f"c{i + 1}" for i in range(len(first))], delimiter, replaces=True)
    if first and all(parse_numeral(name) is not None for name in first):
        raise TableProblems(str(path), [no_header_problem(first)])
    names = _distinct_names(path, first)
    return Header(names, delimiter, replaces=names != first)


def no_header_problem(first: list[str]) -> TableProblem:
    """Return the problem of a table whose first line is a row of data instead of a header line."""
    problem = f"the first line contains numbers ({', '.join(first)[:40]}), not column names"
    # Without a header line the columns are c1, c2, ...; the target is often the last one.
    return TableProblem(problem, {"header": False, "target": f"c{len(first)}"})


def _refuse_preamble(path: Path | str, file: TextIO, records: dict[str, list[list[str]]], form: TableFormat) -> None:
    """Raise TableProblems if the first record looks like a title: a single field above records with several fields."""
    for delimiter, of_delimiter in records.items():
        counts = [len(record) for record in of_delimiter]
        widest = max(counts, default=0)
        if widest > 1 and counts[0] == 1 and counts.count(widest) > len(counts) // 2:
            lines = _lines_before(file, delimiter, form.skip_lines, widest)
            raise TableProblems(str(path), [preamble_problem(" ".join(of_delimiter[0]), lines)])


def preamble_problem(start: str, lines: int) -> TableProblem:
    """Return the problem of a table with ``lines`` lines above its header; the first line begins with ``start``."""
    problem = f"the first line, `{start[:40]}`, is not the header line, which is line {lines + 1}"
    return TableProblem(problem, {"skip_lines": lines})


def _lines_before(file: TextIO, delimiter: str, skipped: int, fields: int) -> int:
    """Count the lines before the first record with ``fields`` fields, and move the file position back to the start.

    ``skipped`` is the number of lines after which the search starts; it is returned if there is no such record.
    """
    lines = next((lines for lines, record in first_lines(file, delimiter, skipped) if len(record) == fields), skipped)
    file.seek(0)
    return lines


def first_lines(file: TextIO, delimiter: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    """Yield, for each of the first records after ``skipped`` lines, the number of lines before it, and its cells."""
    file.seek(0)
    for _ in range(skipped):
        file.readline()
    reader, lines = _reader(file, delimiter), skipped
    with contextlib.suppress(csv.Error):
        for record in itertools.islice(reader, FIRST_RECORDS):
            yield lines, record
            lines = skipped + reader.line_num


def _distinct_names(path: Path | str, names: list[str]) -> list[str]:
    """Return unique names that are not empty; print a notice for each name that differs from the given one."""
    distinct: list[str] = []
    for position, name in enumerate(names):
        base = name if name.strip() else f"column {position + 1}"
        new, number = base, 2
        while new in distinct or (new != name and new in names):
            new, number = f"{base}_{number}", number + 1
        if not name.strip():
            notice(f"{path}: column {position + 1} has no name; it is now called `{new}`")
        elif new != name:
            notice(f"{path}: several columns are called `{name}`; one of them is renamed to `{new}`")
        distinct.append(new)
    return distinct


def read_frames(
    path: Path | str,
    file: TextIO,
    header: Header,
    rows: int | None = None,
    texts: Collection[str] = (),
    form: TableFormat | None = None,
) -> Iterator[Any]:
    """Yield the table as pandas data frames of at most ``rows`` rows, or as one data frame if ``rows`` is None.

    The index counts the rows of the whole table from 0. The columns in ``texts`` contain the cells as
    written, except for leading blanks; in the other columns, missing cells are NaN.
    """
    import pandas as pd

    form, names = form or TableFormat(), header.names
    given = {"names": names} if header.replaces else {}
    table = _read_csv(
        path,
        file,
        header.delimiter,
        form,
        **given,
        low_memory=False,
        chunksize=rows,
        dtype=dict.fromkeys(texts, str),
        keep_default_na=not texts,
        na_values={name: MISSING_VALUES for name in names if name not in texts} if texts else None,
        # In a table with one column, an empty line is a row with an empty cell.
        skip_blank_lines=len(names) > 1,
        header=None if not form.header else 0 if len(names) > 1 else _lines_before_header(file),
    )
    parsed_frames: Iterator[Any] = iter(table if rows else [table])
    while True:
        with _pandas_errors_as_input_error(path, file, header.delimiter, form):
            frame = next(parsed_frames, None)
        if frame is None:
            return
        if len(frame.columns) != len(names):
            problem = f"{path}: the quotes in the header line are ambiguous"
            raise InputError(problem, "put quotes only around complete column names")
        frame.columns = pd.Index(names)
        yield frame


def read_column_texts(path: Path, file: TextIO, header: Header, name: str, form: TableFormat) -> np.ndarray:
    """Return the cells of a column as strings, as written except for leading blanks.

    ``read_frames`` must have read the table without an error before.
    """
    frame = _read_csv(
        path,
        file,
        header.delimiter,
        form,
        names=header.names,
        header=0 if form.header else None,
        usecols=[header.names.index(name)],
        dtype=str,
        keep_default_na=False,
    )
    texts: np.ndarray = frame.iloc[:, 0].to_numpy(dtype=object)
    return texts


def _read_csv(path: Path | str, file: TextIO, delimiter: str, form: TableFormat, **options: Any) -> Any:
    """Call ``pandas.read_csv`` with ``options`` and with the options that are the same for all calls."""
    import pandas as pd

    with _pandas_errors_as_input_error(path, file, delimiter, form):
        return pd.read_csv(
            file,
            sep=delimiter,
            skipinitialspace=True,
            index_col=False,
            skiprows=form.skip_lines,
            decimal="," if form.decimal == "comma" else ".",
            on_bad_lines="error" if form.bad_lines is None else "skip",
            **options,
        )


@contextlib.contextmanager
def _pandas_errors_as_input_error(path: Path | str, file: TextIO, delimiter: str, form: TableFormat) -> Iterator[None]:
    """Convert decoding errors, and the errors and warnings of pandas' parser, inside the block to InputError."""
    import pandas as pd

    try:
        with warnings.catch_warnings():
            # pandas only warns if it drops surplus fields.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {error.reason}", "save it as a .csv file in UTF-8") from error
    except pd.errors.ParserWarning as error:
        problem = f"{path}: some rows have more fields than the header line"
        raise InputError(problem, "give every column a name in the header line") from error
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{path} has no columns", "give a table with a header line and at least two rows") from error
    except pd.errors.ParserError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("Error tokenizing data. C error: ")
        if reason.startswith("Expected"):
            raise _bad_lines_error(path, file, delimiter, form, reason) from error
        if unclosed := re.search(r"EOF inside string starting at row (\d+)", reason):
            # pandas counts the rows from 0 at the header line, without empty lines.
            reason = f"a quote is opened in row {int(unclosed[1]) + 1}, counted from the header line, and never closed"
        raise InputError(f"{path} cannot be read as a table: {reason}", "correct that line or its quotes") from error


def _bad_lines_error(path: Path | str, file: TextIO, delimiter: str, form: TableFormat, reason: str) -> InputError:
    """Return the error that lists the numbers of the lines with more fields than the header line.

    If no such line is found, the error states ``reason``, which is the message of pandas.
    """
    file.seek(0)
    for _ in range(form.skip_lines):
        file.readline()
    reader = _reader(file, delimiter)
    width, lines = 0, []
    with contextlib.suppress(csv.Error):
        for record in reader:
            width = width or len(record)
            if width and len(record) > width:
                lines.append(form.skip_lines + reader.line_num)
    listed = ", ".join(map(str, lines[:MAX_LISTED_LINES]))
    more = f" and {len(lines) - MAX_LISTED_LINES} more" if len(lines) > MAX_LISTED_LINES else ""
    if not lines:
        return InputError(f"{path} cannot be read as a table: {reason}", "correct that line or its quotes")
    noun = "line" if len(lines) == 1 else "lines"
    problem = f"too many fields in {noun} {listed}{more}: {reason}"
    return TableProblems(str(path), [TableProblem(problem, {"bad_lines": "drop"})])


def _reader(file: TextIO, delimiter: str) -> Any:
    return csv.reader(file, delimiter=" " if delimiter == BLANKS else delimiter, skipinitialspace=True)


def _first_records(file: TextIO, delimiter: str, skipped: int) -> list[list[str]]:
    """Return the first records that are not empty, and move the file position back to the start."""
    for _ in range(skipped):
        file.readline()
    records: list[list[str]] = []
    if delimiter == BLANKS:
        lines = (file.readline() for _ in range(FIRST_RECORDS))
        records = [line.split() for line in lines if line.strip()]
    else:
        try:
            for record in _reader(file, delimiter):
                records += [record] if record else []
                if len(records) >= FIRST_RECORDS:
                    break
        except csv.Error:
            # A damaged record after the header line is reported when the rows are read.
            if not records:
                raise
    file.seek(0)
    return records


def _lines_before_header(file: TextIO) -> int:
    """Return the number of empty lines before the header line, and move the file position back to the start."""
    count = next((i for i, line in enumerate(file) if line.strip("\r\n")), 0)
    file.seek(0)
    return count


def parse_text_column(series: Any, form: TableFormat) -> Any:
    """Convert a column of strings to the type that pandas infers, with NaN for missing cells."""
    import pandas as pd

    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([cell] for cell in ["column", *series.tolist()])
    text.seek(0)
    decimal = "," if form.decimal == "comma" else "."
    column = pd.read_csv(text, skipinitialspace=True, low_memory=False, decimal=decimal).iloc[:, 0]
    return column.set_axis(series.index)


def row_and_others(row: int, others: int) -> str:
    """Return a phrase that names a data row, counted from 1, and the number of other rows with the same problem."""
    return f"data row {row}" + (f" and {others} other {'row' if others == 1 else 'rows'}" if others else "")
