"""``proxlearn bench``: time the recursion on this machine."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.folder_recognition import begins_with
from proxlearn.run.user_output_file import check_output, is_written_through, write_output
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.train_and_draw import echo

PLOT_SUFFIXES = (".png", ".pdf")
RESULT_START = re.compile(rb'\{\s*"quick":')
"""Pattern of the start of bench.json: a file that starts otherwise was not written by this command."""
DESCRIPTION = """\
Measure the speed of the recursion on this machine. The variants take turns in one process, and the best of several
repeats counts:
  - one recursion of the paper's experiments: this engine, Algorithms 1 and 2 as printed, and a lower bound for torch
  - losses and neurons other than the paper's
  - how the time grows with N, and how it depends on epsilon
  - a whole run, and the start of a command
The command takes several minutes, or about one minute with --quick. Stop other programs first, because they disturb the
timings."""


def main(args: list[str]) -> int:
    parser = command_parser("bench", DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="make fewer and smaller measurements")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("bench.json"),
        metavar="FILE",
        help="the JSON file to write (default: bench.json); the plot gets the same name with .png and .pdf",
    )
    options = parser.parse_args(args)
    output: Path = options.output
    if output.suffix.lower() in PLOT_SUFFIXES:
        raise InputError(f"-o {output} is the name of the plot", "give a .json file; the plot is written next to it")
    # A device or a pipe has no folder for a plot.
    json_only = is_written_through(output)
    plots = [] if json_only else [output.with_suffix(suffix) for suffix in PLOT_SUFFIXES]
    for path in (output, *plots):
        check_output(path)
    if not json_only:
        refuse_foreign([output, *plots])
    from proxlearn.bench.suite import measure_all

    results = measure_all(options.quick)
    write_output(output, (json.dumps(results, indent=2) + "\n").encode())
    if json_only:
        return 0
    from proxlearn.views.bench_plot import draw_bench, tables

    echo(tables(results) + "\n")
    for path in draw_bench(results, output.absolute().parent, output.stem):
        echo(f"{path}\n")
    echo(f"{output}\n")
    return 0


def refuse_foreign(outputs: list[Path]) -> None:
    """Raise InputError if outputs exist and the first of them, the JSON file, is not an earlier result."""
    existing = [path for path in outputs if path.exists()]
    if existing and not begins_with(Path(os.path.realpath(outputs[0])), RESULT_START):
        raise InputError(
            f"{existing[0]} was not written by `proxlearn bench`", "move that file, or choose another -o FILE"
        )
