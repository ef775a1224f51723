"""``proxlearn fit my.csv --target label``: select settings for a user's table, and fit a model to the table."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import Any

from proxlearn.data.table_problems import FIT_OPTIONS, LIST_SETTINGS
from proxlearn.errors import InputError
from proxlearn.printable_text import hydra_value
from proxlearn.run.folder_recognition import nearest_existing_folder, remove_if_empty
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.train_and_draw import run_session

DESCRIPTION = """\
Fit a model that predicts one or several columns of a table from the others. All settings are selected on the training
rows (recipe=tuned), and the result is reported for rows that were not used for training. `proxlearn predict` and
`proxlearn evaluate` need only the folder of the result.

The table is a file in one of the following formats. The format is recognised from the content, except for .npz:
  text with a header line and columns separated by commas, semicolons, tabs, | or blanks; in UTF-8, UTF-16 or cp1252
  the same compressed (.gz, .bz2, .xz, .zip); Parquet and Excel with the extras parquet and excel; .npz

If the table has problems, such as text or missing values, the error message lists all of them, with a command that
solves them.
"""
EXAMPLES = """\
  proxlearn fit my.csv --target label
  proxlearn fit my.csv --target label --drop id --drop "first name" -o result
  proxlearn fit my.csv --target label --encode onehot --missing median
  proxlearn fit my.csv --target height --target weight                   two targets that are numbers
  proxlearn predict result --data new.csv -o out.csv                     predict the targets of new rows
"""


def main(args: list[str]) -> int:
    options = build_parser().parse_args(args)
    # Hydra takes a second to import, and `--help` does not need it.
    from proxlearn.commands.train import RunPlan, preflight

    plan = preflight(overrides(options))
    if not isinstance(plan, RunPlan):
        raise InputError(
            "the settings describe a sweep, but `proxlearn fit` trains one run", "use `proxlearn train -m` for a sweep"
        )
    command = shlex.join(["proxlearn", "fit", *args])
    existing = nearest_existing_folder(plan.folder)
    try:
        return run_session(plan.config, plan.folder, command, "the same command", _summary)
    finally:
        remove_if_empty(plan.folder, existing)


def _summary(folder: Path) -> str:
    from proxlearn.views.run.run_views import plain_summary

    return plain_summary(folder)


def build_parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``proxlearn fit``; ``FIT_OPTIONS`` lists the options that describe the table."""
    parser = command_parser("fit", DESCRIPTION, EXAMPLES)
    parser.add_argument("table", metavar="FILE", help="the file that contains the table")
    table = parser.add_argument_group("table")
    table.add_argument(
        "--target", action="append", required=True, metavar="COLUMN", help="the column to predict; can be repeated"
    )
    table.add_argument(
        "--drop", action="append", metavar="COLUMN", help="a column that is not used, such as an id; can be repeated"
    )
    table.add_argument("--encode", choices=("onehot",), help="onehot: replace text columns with 0/1 columns")
    table.add_argument(
        "--missing",
        choices=("median", "drop", "indicator"),
        help="missing values: median: fill in the median; drop: leave out the row; indicator: fill in the median and "
        "mark the value in a 0/1 column",
    )
    table.add_argument(
        "--missing-value",
        dest="missing_values",
        action="append",
        metavar="TEXT",
        help="a text or number that marks a missing value, such as ? or -999; can be repeated",
    )
    table.add_argument(
        "--decimal",
        choices=("comma", "point"),
        help="decimal sign: comma (1.234,5) or point (1,234.5); numbers can then also be written as 1 234, $5 or 5 %%",
    )
    table.add_argument(
        "--no-header",
        dest="header",
        action="store_const",
        const=False,
        help="the file has no header line; its columns are called c1, c2, ...",
    )
    table.add_argument("--skip-lines", metavar="NUMBER", help="number of lines before the header line")
    table.add_argument("--bad-lines", choices=("drop",), help="drop: leave out lines with too many fields")
    table.add_argument(
        "--task", choices=("binary", "multiclass", "regression"), help="kind of the target (default: inferred)"
    )
    run = parser.add_argument_group("run")
    run.add_argument("-o", "--output", metavar="FOLDER", help="folder of the result (default: outputs/<file>/<name>)")
    run.add_argument("--seed", default="0", metavar="NUMBER", help="seed of the fit (default: 0)")
    run.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another setting of `proxlearn train`, such as N=200; can be repeated",
    )
    return parser


def overrides(options: argparse.Namespace) -> list[str]:
    """Convert the options of the command to overrides of `proxlearn train`."""
    words = ["dataset=csv", "recipe=tuned", f"dataset.path={hydra_value(options.table)}"]
    settings: dict[str, Any] = {key: getattr(options, key) for key in FIT_OPTIONS} | {"task": options.task}
    for key in (*LIST_SETTINGS, "target"):
        # argparse of Python 3.11 and 3.12 returns an empty list for --option=--.
        settings[key] = settings[key] and ["--" if value == [] else value for value in settings[key]]
    for key, value in settings.items():
        if value is None:
            continue
        if key in (*LIST_SETTINGS, "target"):
            word = (
                f"[{','.join(map(hydra_value, value))}]" if len(value) > 1 or key != "target" else hydra_value(value[0])
            )
        else:
            word = str(value).lower() if isinstance(value, bool) else str(value)
        words.append(f"dataset.{key}={word}")
    words.append(f"seed={options.seed}")
    if options.output is not None:
        words.append(f"hydra.run.dir={hydra_value(options.output)}")
    else:
        stem = re.sub(r"[^\w.-]+", "_", Path(options.table).stem).strip("._") or "table"
        words.append(f"hydra.run.dir=outputs/{stem}/${{proxlearn.run_name:}}")
    return [*words, *options.settings]
