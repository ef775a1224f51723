"""``proxlearn paper``: build the paper's tables and figures from the stored runs, and train missing runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from proxlearn.errors import InputError
from proxlearn.paper.target_names import MEASUREMENTS, RUNS, parse_targets
from proxlearn.terminal.streams import notice
from proxlearn.train_and_draw import echo
from proxlearn.validators import integer, parse_number

DESCRIPTION = """\
Build the paper's tables and figures from the stored runs, in seconds and without the data. If the first argument
is `runs`, the missing runs are trained first.

targets:
  table1 .. table5, shd    a table as .md, .csv and .tex; sources.txt has the commands of its runs
  fig2 .. fig5             a figure as .png and .pdf
  curves                   distances from the paper's published curves, and Figures 4 and 5: curves.md
  health                   the effect of the proximal step in every experiment: health.md
  tuned                    recipe=tuned on every dataset, next to the paper's accuracies: tuned.md
  weights                  proximal, uniform and Fisher-Rao weights on paired splits: weights.md
  losses                   quadratic loss against logistic loss or cross-entropy on paired splits: losses.md
  estimators               the estimators compared with five of scikit-learn on twelve tables: estimators.md
  tables, figures, all     all tables, all figures, or all targets
  runs [TARGET ...]        compute the missing runs and fits of the targets (default: all targets), then build
"""
EPILOG = """\
Runs are stored in an archive, a few files per experiment: outputs/paper/EXPERIMENT/runs.jsonl (status, config, data
checksum and command of every run), metrics.csv, and the clouds that a figure needs. `runs` skips every run that is
finished in the archive. Any other run is trained in its own run folder in outputs/paper/runs (which git ignores)
and packed into the archive when it is finished. A stopped run continues from its run folder; if that folder is gone,
for example in a clean clone, the run starts again from its first step. A run also starts again if its experiment has
more steps than the archived run. The fits of tuned, weights, losses and estimators are stored one by one in
outputs/NAME/results.jsonl; fits that are stored there are not repeated.

examples:
  proxlearn paper all                  every table, figure and page, also in a clean clone
  proxlearn paper table2 fig2          two of them
  proxlearn paper runs table4          train the missing runs of Table 4 first
  proxlearn paper runs --jobs 4        all missing runs and fits, four at a time; can be stopped and repeated
  proxlearn paper --quick              all stages with 1/100 of the steps, into outputs/paper-quick
"""


def main(args: list[str]) -> int:
    options = parser().parse_args(args)
    if not options.targets and not options.quick:
        parser().print_help(sys.stderr)
        return 2
    names = parse_targets(options.targets, options.quick)
    parallel = (
        None
        if options.jobs is None
        else integer(at_least=1, below=4097, example=2)("--jobs", parse_number(options.jobs))
    )
    into = None if options.into is None else Path(options.into)
    makes_runs = RUNS in options.targets or options.quick
    code = _paper_targets(
        [name for name in names if name not in MEASUREMENTS], into, options.quick, makes_runs, parallel
    )
    for name in names:
        if name in MEASUREMENTS and code <= 128:
            code = max(code, _measurement(name, into or Path("outputs"), makes_runs, parallel))
    return code


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="proxlearn paper",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="what to build (see the list above)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="train short runs (1/100 of the steps, at most 100) and build the targets from them; not available for "
        "tuned, weights, losses and estimators",
    )
    parser.add_argument(
        "--into",
        metavar="FOLDER",
        help="folder of the runs and results (default: outputs/paper; with --quick: outputs/paper-quick; for tuned, "
        "weights, losses and estimators: outputs)",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        help="number of parallel runs, with one thread each (default: 1; with --quick: one per core)",
    )
    return parser


def _paper_targets(names: list[str], into: Path | None, quick: bool, makes_runs: bool, parallel: int | None) -> int:
    """Train the missing runs of the targets if requested, build the targets, and return the exit code."""
    if not names:
        return 0
    # torch, pandas and matplotlib are imported only after the arguments are validated.
    from proxlearn.jobs.launcher_setup import available_cores
    from proxlearn.paper.archive import Archive
    from proxlearn.paper.archive_packing import pack_new_runs
    from proxlearn.paper.builders import build, target_entries
    from proxlearn.paper.training_runs import make_runs

    archive = Archive(into or Path("outputs/paper-quick" if quick else "outputs/paper"))
    if archive.is_foreign():
        raise InputError(
            f"{archive.root} contains other files but no runs of the paper", "choose another --into FOLDER"
        )
    code = 0
    if makes_runs:
        code = make_runs(target_entries(names), archive, quick, parallel or (available_cores() if quick else 1))
    else:
        pack_new_runs(archive, quick)
    if code > 128:
        return code
    for name in names:
        paths = build(name, archive)
        if not paths:
            notice(
                f"{archive.root} has no runs of {name}; the stored runs are in outputs/paper of the repository, and"
                f" `proxlearn paper runs {name}` trains new ones (minutes per run; --quick: shorter runs)"
            )
            code = code or 1
        for path in paths:
            echo(f"{path}\n")
    return code


def _measurement(name: str, folder: Path, makes_fits: bool, parallel: int | None) -> int:
    """Compute the missing fits of a page if requested, write the page, and return the exit code."""
    from proxlearn.paper import estimators_page, losses_page, tuned_page
    from proxlearn.paper import weight_updates_page as weights_page

    pages = {"tuned": tuned_page.TUNED, "weights": weights_page.WEIGHTS, "losses": losses_page.LOSSES}
    page: Any = pages.get(name, estimators_page)
    code = page.measure(folder, parallel or 1) if makes_fits else 0
    path = page.write(folder)
    if path is None:
        notice(f"{name} has no results yet; `proxlearn paper runs {name}` computes them")
    else:
        echo(f"{path}\n")
    return code
