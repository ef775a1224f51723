"""The table of new rows that `predict` and `evaluate` read: its command-line arguments and its progress bar."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pandas takes seconds to import, and `--help` needs only the arguments.
    from proxlearn.data.new_rows import Chunk, RowEncoder, RowReader
    from proxlearn.predict.model import Model


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the run folder, the table and the treatment of unknown columns."""
    parser.add_argument(
        "folder", type=Path, metavar="RUN_FOLDER", help="a run folder that `proxlearn train` has written"
    )
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="a table with a header line (.csv, also compressed, .parquet or .xlsx); - reads standard input",
    )
    parser.add_argument(
        "--ignore-extra",
        action="store_true",
        help="ignore columns that the model does not use (default: reject the table)",
    )

    parser.add_argument(
        "--decimal",
        choices=("comma", "point"),
        help="how numbers are written: comma (1.234,5) or point (1,234.5 or 1234.5); default: as in training",
    )


def row_encoder_of(model: Model, options: argparse.Namespace) -> RowEncoder:
    """Return the conversion of a table's columns to features, as in training or with the options of the command."""
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
