"""``proxlearn status [folder]...``: show the state of runs and sweeps, without the slow import of torch."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.train_and_draw import echo
from proxlearn.views.status_table import status_tables

DESCRIPTION = """\
Show the runs and sweeps in the given folders: state, progress, speed, time left, and newest test risk and accuracy. If
these metrics are older than the run's newest step, the column "logged" shows their step.

states of a run:
  running    the process of the run is active
  finished   all steps are done
  stopped    a signal or a callback stopped the run; the same command continues it
  failed     the column "remark" states the reason
  dead       the process of the run no longer exists; the same command continues from the newest checkpoint
states that only the jobs of a sweep have:
  killed, skipped, waiting (another process computes the run), invalid, not started"""
EXAMPLES = """\
  proxlearn status                        everything in outputs/
  proxlearn status outputs/sweeps/NAME    one sweep
  proxlearn status --watch 10             refresh every 10 seconds
"""
CLEAR = "\x1b[H\x1b[J"


def main(args: list[str]) -> int:
    parser = command_parser("status", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help="a run folder, a sweep folder, or a folder that contains such folders (default: outputs)",
    )
    parser.add_argument(
        "-w",
        "--watch",
        nargs="?",
        type=float,
        const=2.0,
        metavar="SECONDS",
        help="refresh the table at this interval until Ctrl-C (2 seconds if no number is given)",
    )
    options = parser.parse_args(args)
    folders: list[Path] = options.folders or [Path("outputs")]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                f"the folder {folder} does not exist",
                "give a folder that contains runs, or start a run with `proxlearn train`",
            )
    if options.watch is not None and not options.watch > 0:
        raise InputError(f"--watch must be greater than 0, got {options.watch:g}", "try --watch 2")
    while True:
        text = status_tables(folders)
        if options.watch is None:
            echo(text)
            return 0
        if sys.stdout.isatty():
            print(CLEAR, end="")
        echo(text)
        time.sleep(options.watch)
