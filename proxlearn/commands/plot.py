"""``proxlearn plot <run folder>...``: draw tables and plots again, from the folders alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.run.folder import RunFolder


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn plot", description="Draw the tables and plots of run folders again, from the folders alone."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_FOLDER", help="for example outputs/wdbc/*")
    folders: list[Path] = parser.parse_args(args).folders
    for folder in folders:
        if not (folder / "metrics.csv").is_file():
            raise InputError(f"{folder} is not a run folder (no metrics.csv in it)", "name a folder that `train` made")
        RunFolder(folder).refuse_links()
    from proxlearn.views.render import render

    for folder in folders:
        for path in render(folder):
            print(path)
    return 0
