"""``proxlearn plot <folder>...``: draw tables and plots again, from the folders alone."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.ownership import is_run
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import SweepFolder
from proxlearn.train_session import echo


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn plot", description="Draw tables and plots again, from the folders of runs and sweeps alone."
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="for example outputs/wdbc/* outputs/sweeps/*"
    )
    folders: list[Path] = parser.parse_args(args).folders
    for folder in folders:
        if is_sweep(folder):
            continue
        refuse_interrupted(folder)
        if not ((folder / "metrics.csv").is_file() and is_run(folder)):
            raise InputError(
                f"{folder} is not a run folder (no metrics.csv or no config.yaml in it)",
                "name a folder that `train` made",
            )
        RunFolder(folder).refuse_links()
    for folder in folders:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InputError(f"cannot write to {folder}", "copy it to a place where you can write")
    from proxlearn.views.run.run_views import render_run
    from proxlearn.views.sweep.sweep_views import render_sweep

    for folder in folders:
        for path in render_sweep(folder.absolute()) if is_sweep(folder) else render_run(folder):
            echo(f"{path}\n")
    return 0


def is_sweep(folder: Path) -> bool:
    return SweepFolder(folder).plan.is_file()
