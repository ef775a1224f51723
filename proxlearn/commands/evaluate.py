"""``proxlearn evaluate <run folder> --data labelled.csv``: compute the metrics of a run on labelled rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from proxlearn.errors import InputError
from proxlearn.predict.prediction_table import add_table_arguments, row_encoder_of, with_progress
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.train_and_draw import echo

DESCRIPTION = """\
Compute the metrics of a run's newest cloud on labelled rows, for the weighted and the unweighted estimate. Only the run
folder is needed, not the training data. The columns of the table are matched to the features by name.

  classes        accuracy, log-loss, expected calibration error, risk
  real target    risk, RMSE, R2, and RMSE in the target's units

The log-loss uses the probabilities of `proxlearn predict`, each of which is at least 1e-6.
"""
EXAMPLES = """\
  proxlearn evaluate outputs/csv/NAME --data labelled.csv
  proxlearn evaluate outputs/csv/NAME --data labelled.csv --target species   if the target column has another name
  proxlearn evaluate outputs/csv/NAME --data labelled.csv --json             print JSON instead of a table
"""


def main(args: list[str]) -> int:
    parser = command_parser("evaluate", DESCRIPTION, EXAMPLES)
    add_table_arguments(parser)
    parser.add_argument("--target", metavar="COLUMN", help="the column with the labels (default: its name in training)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(args)

    from proxlearn.data.new_rows import ColumnSpec, RowReader
    from proxlearn.predict.evaluate import evaluate
    from proxlearn.predict.model import load_model

    with RowReader(options.data) as rows:
        model = load_model(options.folder)
        targets = (options.target,) if options.target else model.targets
        if not targets:
            raise InputError("the run does not store the name of its target column", "give --target COLUMN")
        if len(targets) < len(model.targets):
            problem = f"--target names one column, but the run has {len(model.targets)} targets"
            raise InputError(problem, "leave out --target")
        columns = ColumnSpec(
            row_encoder_of(model, options), targets, needs_target=True, ignore_extra=options.ignore_extra
        )
        named = replace(model, target=targets[0], targets=tuple(targets))
        metrics = evaluate(named, with_progress(rows, rows.chunks(columns), "evaluate"))
    echo(json.dumps(metrics, indent=2, allow_nan=False) + "\n" if options.json else format_table(metrics))
    return 0


def format_table(metrics: dict[str, Any]) -> str:
    """Format the metrics as a Markdown table with one row per estimate."""
    import pandas as pd

    from proxlearn.views.tables import markdown

    rows = [
        {"estimate": estimate} | {name: "undefined" if value is None else value for name, value in values.items()}
        for estimate, values in metrics.items()
        if isinstance(values, dict)
    ]
    count = "1 row" if metrics["rows"] == 1 else f"{metrics['rows']} rows"
    return f"{count}\n\n{markdown(pd.DataFrame(rows))}"
