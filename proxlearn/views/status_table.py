"""Format the state of runs and sweeps as tables for the terminal, without importing torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from proxlearn.core.hyper import BLIND_KAPPA
from proxlearn.jobs.records import DONE
from proxlearn.printable_text import printable
from proxlearn.run.folder_recognition import STAGES
from proxlearn.run.observed_status import RunSnapshot, take_snapshot
from proxlearn.run.overwrite import is_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import JobState, SweepFolder

HEADER = ("run", "state", "step", "done", "rec/s", "left", "logged", "risk", "accuracy", "kappa", "remark")
RIGHT_ALIGNED = ("step", "done", "rec/s", "left", "logged", "risk", "accuracy", "kappa")
KAPPA_NOTE = (
    f"kappa = beta epsilon / h: near equilibrium (with noise_scale = 1), the weights hardly depend on the risk "
    f"if kappa exceeds {BLIND_KAPPA:g}, and mostly follow the risk if kappa is 1 or less.\n"
)
DEPTH = 4
"""Number of levels below a folder that are searched for runs; outputs/<dataset>/<run> is two levels below outputs."""


def status_tables(folders: list[Path]) -> str:
    """Return tables of all runs and sweeps in the folders: one table of single runs, then one table per sweep."""
    runs: dict[Path, RunSnapshot] = {}
    sweeps: dict[Path, list[JobState]] = {}
    for folder in folders:
        for path in find_runs(folder, DEPTH):
            if SweepFolder(path).plan.is_file():
                sweeps[path] = SweepFolder(path.absolute()).look()
            else:
                runs[path] = take_snapshot(path)
    # The runs of a sweep are listed once, in its table.
    swept = {state.run.folder for states in sweeps.values() for state in states if state.run}
    single = sorted((path for path in runs if path.absolute() not in swept), key=lambda path: runs[path].started)
    parts = [format_table([table_row(str(path), runs[path]) for path in single])] if single else []
    for path, states in sweeps.items():
        done = sum(state.state == DONE for state in states)
        rows = [
            table_row(f"{state.job.number}: {state.job.title}", state.run, state.state, state.error) for state in states
        ]
        parts.append(f"{printable(str(path))}: {done} of {len(states)} finished\n{format_table(rows)}")
    snapshots = [*runs.values(), *(state.run for states in sweeps.values() for state in states)]
    if any(run is not None and run.kappa is not None for run in snapshots):
        parts.append(KAPPA_NOTE)
    return "\n".join(parts) or "there are no runs in " + ", ".join(str(folder) for folder in folders) + "\n"


def find_runs(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the run and sweep folders at most ``depth`` levels below ``folder``, without searching inside them."""
    if is_interrupted(folder) or RunFolder(folder).status.is_file() or SweepFolder(folder).plan.is_file():
        yield folder
        return
    if depth == 0:
        return
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        names = sorted(entry.name for entry in entries if entry.name not in STAGES)
    except OSError:
        return
    for name in names:
        yield from find_runs(folder / name, depth - 1)


def table_row(
    name: str, run: RunSnapshot | None, state: str | None = None, remark: str | None = None
) -> tuple[str, ...]:
    """Return the cells of a row in the order of HEADER; ``state`` and ``remark`` override the values of the run."""
    if run is None or run.state == "absent":
        return (name, state or "not started", "", "", "", "", "", "", "", "", remark or "")
    left = "" if run.seconds_left is None else format_duration(run.seconds_left)
    metrics = (run.newest.get(f"test_{metric}_weighted") for metric in ("risk", "accuracy"))
    risk, accuracy = ("" if metric is None else f"{metric:.4g}" for metric in metrics)
    # status.json may be ahead of the newest logged row, or behind it after a failure.
    logged = "" if run.newest_step in (None, run.step) else str(run.newest_step)
    share = f"{run.step / run.steps:.0%}" if run.steps else ""
    remark = remark or run.error or ""
    if (state or run.state) == "dead":
        remark = f"process {run.pid} on {run.host} is no longer running"
    kappa = "" if run.kappa is None else f"{run.kappa:.4g}"
    progress = (str(run.step), share, f"{run.rate:.4g}", left, logged)
    return (name, state or run.state, *progress, risk, accuracy, kappa, remark)


def format_duration(seconds: float) -> str:
    """Return a duration as a string, such as ``3 days``, ``2:05:09`` or ``1:07``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_table(rows: list[tuple[str, ...]]) -> str:
    """Return the rows as a string with aligned columns; a column that is empty in every row is omitted."""
    columns = [i for i, _ in enumerate(HEADER) if i < 2 or any(row[i] for row in rows)]
    # A cell is one line, even if the name of a folder or an error contains a line break.
    lines = [tuple(printable(row[i]) for i in columns) for row in (HEADER, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    names = [HEADER[i] for i in columns]
    return "".join(
        "  ".join(
            cell.rjust(width) if name in RIGHT_ALIGNED else cell.ljust(width)
            for cell, width, name in zip(line, widths, names, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )
