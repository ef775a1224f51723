"""``proxlearn predict <run folder> --data new.csv -o out.csv``: predict the targets of new rows."""

from __future__ import annotations

from proxlearn.predict.prediction_table import (
    STDOUT,
    add_table_arguments,
    check_prediction_output,
    open_prediction_table,
    row_encoder_of,
    with_progress,
    write_predictions,
)
from proxlearn.printable_text import counted
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.terminal.streams import notice

DESCRIPTION = """\
Predict the targets of new rows with the newest cloud of a run. Only the run folder is needed, not the training data.
The columns of the table are matched to the features by name.

The output has one line per row, with these columns:
  prediction             the class, or the value in the target's units
  probability_<class>    classes only: one column per class, each at least 1e-6, so never exactly 0 or 1
  spread                 the standard error of the prediction (for classes: of the probability of the predicted class)

`spread` estimates how far the prediction would move if the same number of particles were drawn again independently. It
is large if the particles disagree; it does not measure the noise of the targets. Trained particles compensate for one
another, so the predictions of a run with another seed typically differ by less.
"""
EXAMPLES = """\
  proxlearn predict outputs/csv/NAME --data new.csv -o out.csv       write the predictions to out.csv
  proxlearn predict outputs/csv/NAME --data new.csv --keep id        copy the column `id`, which is not a feature
  cat new.csv | proxlearn predict outputs/csv/NAME --data - | head   standard input and output
"""


def main(args: list[str]) -> int:
    parser = command_parser("predict", DESCRIPTION, EXAMPLES)
    add_table_arguments(parser)
    parser.add_argument(
        "-o", "--output", default=STDOUT, metavar="FILE", help="the CSV file to write (default: -, standard output)"
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN",
        help="copy this column, such as an id, to the output; can be repeated",
    )
    parser.add_argument(
        "--estimate",
        choices=("weighted", "unweighted"),
        default="weighted",
        help="mean over the particles with their weights (weighted, default) or without (unweighted)",
    )
    options = parser.parse_args(args)
    check_prediction_output(options.output, options.data)

    # torch takes seconds to import, so the arguments are checked first.
    from proxlearn.data.new_rows import ColumnSpec, RowReader
    from proxlearn.predict.model import load_model

    with RowReader(options.data) as rows:
        model = load_model(options.folder)
        columns = ColumnSpec(
            row_encoder_of(model, options), model.targets, keep=options.keep, ignore_extra=options.ignore_extra
        )
        with open_prediction_table(options.output) as file:
            chunks = with_progress(rows, rows.chunks(columns), "predict")
            lines, unseen = write_predictions(model, chunks, options.estimate, file)
    if options.output != STDOUT:
        count = f"; rows with a category that does not occur in the training rows: {unseen}" if unseen else ""
        notice(f"{counted(lines, 'row')} -> {options.output}{count}")
    return 0
