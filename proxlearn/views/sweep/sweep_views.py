"""A sweep as a table and as combined plots: reads the sweep's folder and the run folders that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.errors import SAME_COMMAND
from proxlearn.files.atomic import write_atomically
from proxlearn.jobs.records import DONE
from proxlearn.run.sweep_folder import JobState, SweepFolder
from proxlearn.views.run.tables import markdown
from proxlearn.views.style import house_style
from proxlearn.views.sweep.plots import draw_curves, draw_finals, draw_heat_maps
from proxlearn.views.sweep.sweep_data import REPEATS, read_sweep

SHORT = {
    "test_accuracy_weighted": "accuracy",
    "test_accuracy_unweighted": "accuracy, unweighted",
    "test_risk_weighted": "risk",
    "test_risk_unweighted": "risk, unweighted",
}
"""Headings for people; all figures are of the test part."""


def render_sweep(folder: Path) -> list[Path]:
    """summary.csv, summary.md, and the plots that this sweep's runs allow."""
    states = SweepFolder(folder).look()
    paths = write_tables(folder, states)
    sweep = read_sweep(folder, states)
    if sweep is None:
        return paths
    with house_style():
        return paths + draw_curves(sweep) + draw_finals(sweep) + draw_heat_maps(sweep)


def write_tables(folder: Path, states: list[JobState]) -> list[Path]:
    csv, md = folder / "summary.csv", folder / "summary.md"
    write_atomically(csv, table(states).to_csv(index=False).encode())
    text = f"# {folder.name}\n\n{counts(states)}\n\n{markdown(readable_table(states))}{AVERAGES}"
    averages = mean_over_seeds(states)
    if averages is not None:
        text += f"\n## Over {' and '.join(key for key in REPEATS if key in states[0].job.values)}\n\n"
        text += markdown(averages)
    write_atomically(md, text.encode())
    return [csv, md]


AVERAGES = "\nFigures are of the test part, at the newest logged step.\n"


def table(states: list[JobState]) -> pd.DataFrame:
    """One row a job, for programs."""
    rows: list[dict[str, Any]] = []
    for state in states:
        row: dict[str, Any] = {"job": state.job.number, **state.job.values, "state": state.state}
        run = state.run
        row |= {"step": run.step, "steps": state.job.steps, **run.newest, "seconds": run.seconds} if run else {}
        row |= {"started": run.started, "folder": state.job.folder} if run else {}
        rows.append(row | {"error": state.error})
    # Jobs without a run know fewer columns; the error stays last.
    made = pd.DataFrame(rows)
    made = made.astype({name: "Int64" for name in ("step", "steps") if name in made})
    return made[[*(name for name in made.columns if name != "error"), "error"]]


def readable_table(states: list[JobState]) -> pd.DataFrame:
    """The same, as much as fits on a line."""
    made = table(states).drop(columns=["started", "folder", "steps"], errors="ignore")
    made = made.rename(columns=SHORT)
    for name in ("step", "seconds"):
        if name in made:
            made[name] = [("" if pd.isna(value) else f"{value:.{0 if name == 'step' else 1}f}") for value in made[name]]
    made["error"] = made["error"].fillna("")
    return made if made["error"].any() else made.drop(columns="error")


def mean_over_seeds(states: list[JobState]) -> pd.DataFrame | None:
    """Mean and standard deviation over seeds and splits, where there are several; finished jobs only."""
    parameters = [key for key in states[0].job.values if key not in REPEATS]
    if len(parameters) == len(states[0].job.values):
        return None
    finished = [state for state in states if state.state == DONE]
    if not finished:
        return None
    made = table(finished)
    figures = [name for name in SHORT if name in made]
    if not figures:
        return None
    groups = made.groupby(parameters, sort=False) if parameters else made.groupby(lambda _: "all")
    rows = []
    for values, group in groups:
        row = dict(zip(parameters, values if isinstance(values, tuple) else (values,), strict=False))
        row["runs"] = len(group)
        for name in figures:
            spread = group[name].std() if len(group) > 1 else float("nan")
            row[SHORT[name]] = f"{group[name].mean():.4g}" + ("" if pd.isna(spread) else f" ± {spread:.2g}")
        rows.append(row)
    return pd.DataFrame(rows)


def counts(states: list[JobState]) -> str:
    """How many jobs there are in each state, in words."""
    found = pd.Series([state.state for state in states]).value_counts(sort=False)
    return f"{len(states)} jobs: " + ", ".join(f"{count} {state}" for state, count in found.items())


def summary(folder: Path, to_go_on: str = SAME_COMMAND) -> str:
    """The end of a sweep on the terminal; ``to_go_on`` names what continues it."""
    states = SweepFolder(folder).look()
    lines = ["", markdown(readable_table(states)), counts(states)]
    if any(state.state not in (DONE, "invalid") for state in states):
        lines.append(f"{to_go_on.capitalize()} continues what is partial and runs what is missing.")
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    lines.append(f"Table, combined plots and the jobs' logs: {shown}")
    return "\n".join(lines) + "\n"
