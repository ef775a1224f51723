"""``proxlearn predict <run folder> --data new.csv -o out.csv``: what a trained cloud says of new rows."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from proxlearn.errors import InputError
from proxlearn.run.output_file import check_output, open_output, same_file
from proxlearn.text import printable_lines

if TYPE_CHECKING:
    from proxlearn.data.row_reader import Chunk, RowReader
    from proxlearn.predict.model import Model

STDIN = STDOUT = "-"
DESCRIPTION = """\
Predict new rows with the newest cloud of a run, from the run folder alone. The columns are matched by name.

The output has a line for each row: `prediction`; for classes the probability of each one, `probability_<class>`, which
is at least 1e-6 and so never exactly 0 or 1; and `spread`, the standard error of the prediction (of a class: of its
probability) as a mean over the cloud's particles: how far it would typically move if as many particles were drawn anew,
independently. It tells where the particles disagree, not how noisy the targets are. Trained particles make up for one
another: a run with another seed moves less.
"""
EXAMPLES = """\
examples:
  proxlearn predict outputs/csv/NAME --data new.csv -o out.csv
  proxlearn predict outputs/csv/NAME --data new.csv --keep id        the column `id` is copied, not looked at
  cat new.csv | proxlearn predict outputs/csv/NAME --data - | head   standard input and output
"""


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn predict",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_inputs(parser)
    parser.add_argument("-o", "--output", default=STDOUT, metavar="FILE", help="where to write; default: -, the output")
    parser.add_argument(
        "--keep", action="append", default=[], metavar="COLUMN", help="copy a column, such as an id (repeatable)"
    )
    parser.add_argument(
        "--estimate", choices=("weighted", "unweighted"), default="weighted", help="mean under rho (default), or plain"
    )
    parsed = parser.parse_args(args)
    refuse_input(parsed.output, parsed.data)

    # torch takes seconds to import: not before the words are known to be good.
    from proxlearn.data.row_reader import ColumnSpec, RowReader
    from proxlearn.predict.folder import load

    with RowReader(parsed.data) as rows:
        model = load(parsed.folder)
        wanted = ColumnSpec(model.columns, model.target, keep=parsed.keep, ignore_extra=parsed.ignore_extra)
        with open_table(parsed.output) as file:
            write(model, with_progress(rows, rows.chunks(wanted), "predict"), parsed.estimate, file)
    return 0


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """The words that `predict` and `evaluate` share."""
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="a folder that `proxlearn train` made")
    parser.add_argument("--data", required=True, metavar="FILE", help="a table with a header line; -: standard input")
    parser.add_argument("--ignore-extra", action="store_true", help="leave columns out that the model does not know")


def write(model: Model, pieces: Iterable[Chunk], estimate: str, file: TextIO) -> None:
    """One line a row, piece by piece."""
    import numpy as np
    import pandas as pd

    classes = np.array(model.classes, dtype=object)
    header = True
    for piece in pieces:
        found = model.predict(piece.X, estimate)
        columns: dict[str, Any] = {"prediction": classes[found.predicted] if model.classes else found.predicted}
        columns |= {f"probability_{name}": p for name, p in zip(model.classes, found.probabilities.T, strict=True)}
        columns["spread"] = found.spread
        for name in piece.kept:
            if name in columns:
                raise InputError(f"the output has a column `{name}` of its own", "rename yours, or drop its --keep")
        pd.DataFrame(piece.kept | columns).to_csv(file, index=False, header=header, lineterminator="\n")
        header = False


def with_progress(rows: RowReader, pieces: Iterable[Chunk], what: str) -> Iterator[Chunk]:
    """The pieces, with progress on stderr where it takes more than two seconds."""
    from tqdm import tqdm

    interval = 0.1 if sys.stderr.isatty() else 10.0
    with tqdm(total=rows.size, desc=what, unit="B", unit_scale=True, delay=2, mininterval=interval) as bar:
        for piece in pieces:
            yield piece
            bar.update(rows.bytes_read - bar.n)


def refuse_input(output: str, data: str) -> None:
    """Refuse an output that is the table to predict, by whatever name or redirection, or that cannot be written."""
    source = 0 if data == STDIN else Path(data).expanduser()
    if output != STDOUT:
        check_output(Path(output), [source])
        return
    with contextlib.suppress(OSError):
        # `predict --data x.csv >> x.csv` would read what it writes, without end.
        status = os.fstat(1)
        if stat.S_ISREG(status.st_mode) and same_file(status, source):
            raise InputError("the standard output is the table to predict", "write to another file: -o FILE")


@contextlib.contextmanager
def open_table(output: str) -> Iterator[TextIO]:
    """The output; a file appears under its name when it is whole."""
    if output == STDOUT:
        with exact_output() as shown_on:
            yield shown_on
        return
    with open_output(Path(output)) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()


@contextlib.contextmanager
def exact_output() -> Iterator[TextIO]:
    """Standard output for a table: a letter that its encoding lacks is an error here, and not escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "backslashreplace":
        sys.stdout.reconfigure(errors="strict")
    try:
        yield PrintableOutput() if sys.stdout.isatty() else sys.stdout
    except UnicodeEncodeError as error:
        problem = f"standard output is {error.encoding}, which cannot write {error.object[error.start]!a}"
        raise InputError(problem, "give -o FILE, which is UTF-8, or set PYTHONIOENCODING=utf-8") from error


class PrintableOutput(io.StringIO):
    """A terminal that shows a table: classes and kept columns may hold control characters."""

    def write(self, text: str) -> int:
        return sys.stdout.write(printable_lines(text))
