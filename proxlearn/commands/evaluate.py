"""``proxlearn evaluate <run folder> --data labelled.csv``: how good a trained cloud is on rows of your own."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

from proxlearn.commands.predict import add_inputs, with_progress
from proxlearn.errors import InputError
from proxlearn.train_session import echo

DESCRIPTION = """\
Score the newest cloud of a run on labelled rows, from the run folder alone: for classes accuracy, log-loss, expected
calibration error and risk, for a real target risk, RMSE and R2, by both estimates. The columns are matched by name. The
log-loss is that of the probabilities that `proxlearn predict` gives, each at least 1e-6.
"""
EXAMPLES = """\
examples:
  proxlearn evaluate outputs/csv/NAME --data labelled.csv
  proxlearn evaluate outputs/csv/NAME --data labelled.csv --target species   where the target is called otherwise
  proxlearn evaluate outputs/csv/NAME --data labelled.csv --json             for programs
"""


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn evaluate",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_inputs(parser)
    parser.add_argument("--target", metavar="COLUMN", help="the column with the right answers; default: as in training")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parsed = parser.parse_args(args)

    from proxlearn.data.row_reader import ColumnSpec, RowReader
    from proxlearn.predict.evaluate import evaluate
    from proxlearn.predict.folder import load

    with RowReader(parsed.data) as rows:
        model = load(parsed.folder)
        target = parsed.target or model.target
        if target is None:
            raise InputError("this run's target has no column's name", "give --target COLUMN")
        wanted = ColumnSpec(model.columns, target, needs_target=True, ignore_extra=parsed.ignore_extra)
        found = evaluate(replace(model, target=target), with_progress(rows, rows.chunks(wanted), "evaluate"))
    echo(json.dumps(found, indent=2, allow_nan=False) + "\n" if parsed.json else table(found))
    return 0


def table(found: dict[str, Any]) -> str:
    import pandas as pd

    from proxlearn.views.run.tables import markdown

    lines = [
        {"estimate": name} | {key: "undefined" if value is None else value for key, value in figures.items()}
        for name, figures in found.items()
        if isinstance(figures, dict)
    ]
    return f"{found['rows']} rows\n\n{markdown(pd.DataFrame(lines))}"
