"""The arguments for the input tables of `predict` and `evaluate`, and the output table of `predict`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from proxlearn.errors import InputError
from proxlearn.printable_text import printable_lines
from proxlearn.run.user_output_file import check_output, open_output, same_file
from proxlearn.terminal.streams import notice

if TYPE_CHECKING:  # pandas takes seconds to import, and `--help` needs only the arguments.
    from proxlearn.data.new_rows import Chunk, RowEncoder, RowReader
    from proxlearn.predict.model import Model


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the run folder, the table, its number format and the treatment of unknown columns."""
    parser.add_argument(
        "folder", type=Path, metavar="RUN_FOLDER", help="a run folder that `proxlearn train` has written"
    )
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="a table with a header line (.csv, which may be compressed, .parquet or .xlsx), or - for standard input",
    )
    parser.add_argument(
        "--ignore-extra",
        action="store_true",
        help="ignore columns that the training table did not have (default: reject the table)",
    )

    parser.add_argument(
        "--decimal",
        choices=("comma", "point"),
        help="how numbers are written: comma (1.234,5) or point (1,234.5 or 1234.5); with either, numbers such as "
        "1 234, $5 and 5 %% are also read (default: the format of the training table)",
    )


def row_encoder_of(model: Model, options: argparse.Namespace) -> RowEncoder:
    """Return the row encoder of a model, with the number format that the options request, if any."""
    from proxlearn.data.feature_encoding import FeatureEncoder
    from proxlearn.data.new_rows import RowEncoder

    rows = model.rows or RowEncoder(FeatureEncoder(model.columns))
    return rows if options.decimal is None else replace(rows, form=replace(rows.form, decimal=options.decimal))


def with_progress(rows: RowReader, chunks: Iterable[Chunk], description: str) -> Iterator[Chunk]:
    """Yield the chunks and show a progress bar on stderr if reading takes more than two seconds."""
    from tqdm import tqdm

    interval = 0.1 if sys.stderr.isatty() else 10.0
    with tqdm(total=rows.size, desc=description, unit="B", unit_scale=True, delay=2, mininterval=interval) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(rows.bytes_read - bar.n)


if TYPE_CHECKING:  # torch and pandas take seconds to import, and the output is checked before they are needed.
    from proxlearn.data.new_rows import Chunk
    from proxlearn.predict.model import Model

STDIN = STDOUT = "-"


def check_prediction_output(output: str, data: str) -> None:
    """Raise InputError if the output cannot be written or is the input table itself, directly or by redirection.

    ``output`` and ``data`` are the paths of the output and of the input table, or - for the standard streams.
    """
    source = 0 if data == STDIN else Path(data).expanduser()
    if output != STDOUT:
        check_output(Path(output), [source])
        return
    with contextlib.suppress(OSError):
        # `predict --data x.csv >> x.csv` would read its own output forever.
        status = os.fstat(1)
        if stat.S_ISREG(status.st_mode) and same_file(status, source):
            raise InputError("standard output is redirected to the input file", "write to another file with -o FILE")


def write_predictions(model: Model, chunks: Iterable[Chunk], estimate: str, file: TextIO) -> tuple[int, int]:
    """Predict the targets of all rows, and write a CSV table with one line per row.

    The columns are those that are copied from the input table, the predictions, the probabilities of the classes, and
    the standard errors (``Prediction.spread``). In the lines of rows that cannot be predicted, only the copied columns
    have values. Return the number of lines without the header line, and the number of rows with a category that does
    not occur in the training rows.
    """
    import numpy as np
    import pandas as pd

    classes = np.array(model.classes, dtype=object)
    header, lines, unseen = True, 0, 0
    for chunk in chunks:
        lines += len(chunk.X) if chunk.complete is None else len(chunk.complete)
        unseen += chunk.unseen
        prediction = model.predict(chunk.X, estimate)
        columns: dict[str, Any] = {}
        if len(model.targets) > 1:
            columns |= {f"prediction_{name}": prediction.predicted[:, i] for i, name in enumerate(model.targets)}
            columns |= {f"spread_{name}": prediction.spread[:, i] for i, name in enumerate(model.targets)}
        else:
            columns["prediction"] = classes[prediction.predicted] if model.classes else prediction.predicted
            probabilities = zip(model.classes, prediction.probabilities.T, strict=True)
            columns |= {f"probability_{name}": p for name, p in probabilities}
            columns["spread"] = prediction.spread
        if chunk.complete is not None:
            count = int((~chunk.complete).sum())
            notice(f"rows with a missing value are not predicted (the run uses dataset.missing=drop): {count}")
            columns = {name: _spread_out(values, chunk.complete) for name, values in columns.items()}
        for name in chunk.kept:
            if name in columns:
                raise InputError(
                    f"the output already has a column `{name}`",
                    f"rename the column in the table, or leave out --keep {name}",
                )
        pd.DataFrame(chunk.kept | columns).to_csv(file, index=False, header=header, lineterminator="\n")
        header = False
    return lines, unseen


def _spread_out(values: Any, complete: Any) -> Any:
    """Return an array with the values at the positions of the complete rows, and None elsewhere."""
    import numpy as np

    column = np.full(len(complete), None, dtype=object)
    column[complete] = values
    return column


@contextlib.contextmanager
def open_prediction_table(output: str) -> Iterator[TextIO]:
    """Yield a text stream to ``output``, which is a path, or - for standard output.

    A regular file is written under a temporary name and gets its final name when it is complete.
    """
    if output == STDOUT:
        with exact_output() as file:
            yield file
        return
    with open_output(Path(output)) as binary:
        text = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()


@contextlib.contextmanager
def exact_output() -> Iterator[TextIO]:
    """Yield a stream to standard output; raise InputError for a character that its encoding cannot represent."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "backslashreplace":
        sys.stdout.reconfigure(errors="strict")
    try:
        yield PrintableOutput() if sys.stdout.isatty() else sys.stdout
    except UnicodeEncodeError as error:
        problem = (
            f"standard output is encoded in {error.encoding}, which has no character {error.object[error.start]!a}"
        )
        raise InputError(problem, "write to a file in UTF-8 with -o FILE, or set PYTHONIOENCODING=utf-8") from error


class PrintableOutput(io.StringIO):
    """A text stream to a terminal that escapes control characters, which class labels and cells may contain."""

    def write(self, text: str) -> int:
        return sys.stdout.write(printable_lines(text))
