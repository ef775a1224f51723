"""``proxlearn status [folder]...``: runs and sweeps as they are now; quick, since torch is not asked."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from proxlearn.errors import InputError
from proxlearn.jobs.records import DONE
from proxlearn.run.overwrite import is_interrupted
from proxlearn.run.ownership import STAGING
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.run_snapshot import RunSnapshot, take_snapshot
from proxlearn.run.sweep_folder import JobState, SweepFolder
from proxlearn.text import printable
from proxlearn.train_session import echo

DESCRIPTION = """\
Show the runs and sweeps below folders: state, progress, speed, time left, newest test risk and accuracy
(of the recursion under "logged", where that is another one than the run's).

states: running, finished, stopped (by a signal; the same command goes on), failed, dead (it says that it is running,
and its process is gone; the same command goes on from its newest checkpoint). Jobs of a sweep besides: killed,
skipped, waiting (another process has the run), invalid, not started."""
HEADER = ("run", "state", "step", "done", "rec/s", "left", "logged", "risk", "accuracy", "remark")
RIGHT = ("step", "done", "rec/s", "left", "logged", "risk", "accuracy")
DEPTH = 4
"""How far below a named folder runs are looked for: outputs/<dataset>/<run> is two."""
CLEAR = "\x1b[H\x1b[J"


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn status", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="runs, sweeps, or what holds them (outputs)"
    )
    parser.add_argument(
        "-w", "--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help="again every so many seconds (2)"
    )
    options = parser.parse_args(args)
    folders: list[Path] = options.folders or [Path("outputs")]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                f"no folder {folder}", "name one that holds runs, or give a `proxlearn train` command first"
            )
    if options.watch is not None and not options.watch > 0:
        raise InputError(f"--watch must be above 0, got {options.watch:g}", "try --watch 2")
    while True:
        text = report(folders)
        if options.watch is None:
            echo(text)
            return 0
        if sys.stdout.isatty():
            print(CLEAR, end="")
        echo(text)
        time.sleep(options.watch)


def report(folders: list[Path]) -> str:
    """Everything below the folders: the runs, then each sweep."""
    runs: dict[Path, RunSnapshot] = {}
    sweeps: dict[Path, list[JobState]] = {}
    for folder in folders:
        for path in find_runs(folder, DEPTH):
            if SweepFolder(path).plan.is_file():
                sweeps[path] = SweepFolder(path.absolute()).look()
            else:
                runs[path] = take_snapshot(path)
    # A sweep's own runs are shown there, and once is enough.
    listed = {state.run.folder for states in sweeps.values() for state in states if state.run}
    alone = sorted((path for path in runs if path.absolute() not in listed), key=lambda path: runs[path].started)
    parts = [table([row(str(path), runs[path]) for path in alone])] if alone else []
    for path, states in sweeps.items():
        done = sum(state.state == DONE for state in states)
        rows = [row(f"{state.job.number}: {state.job.title}", state.run, state.state, state.error) for state in states]
        parts.append(f"{printable(str(path))}: {done} of {len(states)} finished\n{table(rows)}")
    return "\n".join(parts) or "no runs below " + ", ".join(str(folder) for folder in folders) + "\n"


def find_runs(folder: Path, depth: int) -> Iterator[Path]:
    """Run and sweep folders at or below ``folder``; nothing inside one is looked at."""
    if is_interrupted(folder) or RunFolder(folder).status.is_file() or SweepFolder(folder).plan.is_file():
        yield folder
        return
    if depth == 0:
        return
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        below = sorted(entry.name for entry in entries if entry.name not in STAGING)
    except OSError:
        return
    for name in below:
        yield from find_runs(folder / name, depth - 1)


def row(name: str, run: RunSnapshot | None, state: str | None = None, remark: str | None = None) -> tuple[str, ...]:
    if run is None or run.state == "absent":
        return (name, state or "not started", "", "", "", "", "", "", "", remark or "")
    left = "" if run.seconds_left is None else interval(run.seconds_left)
    figures = (run.newest.get(f"test_{quantity}_weighted") for quantity in ("risk", "accuracy"))
    risk, accuracy = ("" if figure is None else f"{figure:.4g}" for figure in figures)
    # The figures are of their own step: status.json is ahead of the newest logged row, or behind it after a failure.
    logged = "" if run.newest_step in (None, run.step) else str(run.newest_step)
    share = f"{run.step / run.steps:.0%}" if run.steps else ""
    told = remark or run.error or ""
    if (state or run.state) == "dead":
        told = f"process {run.pid} on {run.host} is gone"
    return (name, state or run.state, str(run.step), share, f"{run.rate:.4g}", left, logged, risk, accuracy, told)


def interval(seconds: float) -> str:
    """3 days, 2:05:09, 1:07: two units are enough."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def table(rows: list[tuple[str, ...]]) -> str:
    """Aligned columns; those that are empty in every row are left out."""
    kept = [i for i, name in enumerate(HEADER) if i < 2 or any(line[i] for line in rows)]
    # A cell is one line, whatever a folder is called or an error says.
    lines = [tuple(printable(line[i]) for i in kept) for line in (HEADER, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(kept))]
    names = [HEADER[i] for i in kept]
    return "".join(
        "  ".join(
            cell.rjust(width) if name in RIGHT else cell.ljust(width)
            for cell, width, name in zip(line, widths, names, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )
