"""``proxlearn plot <folder>...``: create the tables and plots of runs and sweeps again."""

from __future__ import annotations

import os
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.folder_recognition import is_run
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import SweepFolder
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.train_and_draw import echo

DESCRIPTION = """\
Create the tables and plots of runs and sweeps again. Only their folders are needed, not the data.
A run also creates them at its end; use this command for a run that is still running or was stopped, after an upgrade of
proxlearn, or in a copy of the folder on another machine."""
EXAMPLES = """\
  proxlearn plot outputs/wdbc/NAME       one run
  proxlearn plot outputs/sweeps/NAME     a sweep: its summary and the plots of all runs
  proxlearn plot outputs/wdbc/*          all runs of a dataset
"""


def main(args: list[str]) -> int:
    parser = command_parser("plot", DESCRIPTION, EXAMPLES)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a run folder or a sweep folder")
    folders: list[Path] = parser.parse_args(args).folders
    for folder in folders:
        require_drawable(folder)
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"cannot write to {folder}", "copy the folder to a place where you have write permission")
    from proxlearn.views.run.run_views import render_run
    from proxlearn.views.sweep.sweep_views import render_sweep

    for folder in folders:
        for path in render_sweep(folder.absolute()) if SweepFolder(folder).plan.is_file() else render_run(folder):
            echo(f"{path}\n")
    return 0


def require_drawable(folder: Path) -> None:
    """Raise InputError if a folder is neither a sweep folder nor the folder of a run with metrics."""
    if SweepFolder(folder).plan.is_file():
        return
    refuse_interrupted(folder)
    if not ((folder / "metrics.csv").is_file() and is_run(folder)):
        raise InputError(
            f"{folder} is not a run folder (it lacks metrics.csv or config.yaml)",
            "give a folder that `proxlearn train` created",
        )
    RunFolder(folder).refuse_links()
