"""Write the tables and the combined plots of a sweep from the sweep folder and the run folders of its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.errors import SAME_COMMAND
from proxlearn.files.atomic import write_atomically
from proxlearn.files.safe_read import display_path
from proxlearn.jobs.records import DONE
from proxlearn.run.sweep_folder import JobState, SweepFolder
from proxlearn.views.style import house_style
from proxlearn.views.sweep.sweep_plots import (
    REPEATS,
    draw_curves,
    draw_final_metrics,
    draw_heat_maps,
    read_sweep,
    varied_keys,
)
from proxlearn.views.tables import markdown

HEADINGS = {
    "test_accuracy_weighted": "accuracy",
    "test_accuracy_unweighted": "accuracy, unweighted",
    "test_risk_weighted": "risk",
    "test_risk_unweighted": "risk, unweighted",
    "validation_risk_weighted": "validation risk",
    "validation_accuracy_weighted": "validation accuracy",
    "validation_log_loss_weighted": "validation log-loss",
    "validation_rmse_weighted": "validation rmse",
}
"""Column headings in summary.md for the metrics of metrics.csv."""
METRICS_NOTE = "\nThe metrics are computed on the test part at the newest logged step.\n"
VALIDATION_NOTE = "\nThe validation metrics are computed on held-out training rows; use them to compare settings.\n"


def render_sweep(folder: Path) -> list[Path]:
    """Write summary.csv, summary.md and every plot for which enough metrics are logged; return their paths."""
    states = SweepFolder(folder).look()
    paths = write_tables(folder, states)
    sweep = read_sweep(folder, states)
    if sweep is None:
        return paths
    with house_style():
        return paths + draw_curves(sweep) + draw_final_metrics(sweep) + draw_heat_maps(sweep)


def write_tables(folder: Path, states: list[JobState]) -> list[Path]:
    """Write summary.csv, with all columns, and summary.md, with means over the repeats; return their paths."""
    csv, md = folder / "summary.csv", folder / "summary.md"
    write_atomically(csv, job_table(states).to_csv(index=False).encode())
    text = f"# {folder.name}\n\n{count_states(states)}\n\n{markdown(readable_table(states))}{METRICS_NOTE}"
    if any(str(name).startswith("validation_") for name in job_table(states)):
        text += VALIDATION_NOTE
    means = mean_over_seeds(states)
    if means is not None:
        text += f"\n## Mean over {' and '.join(key for key in REPEATS if key in states[0].job.values)}\n\n"
        text += markdown(means)
    write_atomically(md, text.encode())
    return [csv, md]


def job_table(states: list[JobState]) -> pd.DataFrame:
    """Return the table of the jobs with one row per job and all columns, as in summary.csv."""
    rows: list[dict[str, Any]] = []
    for state in states:
        row: dict[str, Any] = {"job": state.job.number, **state.job.values, "state": state.state}
        run = state.run
        if run is not None:
            row |= {"step": run.step, "steps": state.job.steps, **run.newest, "seconds": run.seconds}
            row |= {"started": run.started, "folder": state.job.folder}
        rows.append(row | {"error": state.error})
    # Jobs without a run have fewer columns; the error stays the last column.
    table = pd.DataFrame(rows)
    table = table.astype({name: "Int64" for name in ("step", "steps") if name in table})
    return table[[*(name for name in table.columns if name != "error"), "error"]]


def readable_table(states: list[JobState]) -> pd.DataFrame:
    """Return the table of the jobs with short headings and without the columns started, folder and steps."""
    table = job_table(states).drop(columns=["started", "folder", "steps"], errors="ignore")
    table = table.rename(columns=HEADINGS)
    for name, digits in (("step", 0), ("seconds", 1)):
        if name in table:
            table[name] = ["" if pd.isna(value) else f"{value:.{digits}f}" for value in table[name]]
    table["error"] = table["error"].fillna("")
    return table if table["error"].any() else table.drop(columns="error")


def mean_over_seeds(states: list[JobState]) -> pd.DataFrame | None:
    """Return the mean and standard deviation, over seeds and splits, of the metrics of finished jobs.

    The result is None if no seed or split was swept, or if no finished job has metrics.
    """
    parameters = varied_keys(states)
    if len(parameters) == len(states[0].job.values):
        return None
    finished = [state for state in states if state.state == DONE]
    if not finished:
        return None
    table = job_table(finished)
    metrics = [name for name in HEADINGS if name in table]
    if not metrics:
        return None
    groups = table.groupby(parameters, sort=False) if parameters else table.groupby(lambda _: "all")
    rows = []
    for values, group in groups:
        row = dict(zip(parameters, values if isinstance(values, tuple) else (values,), strict=False))
        row["runs"] = len(group)
        for name in metrics:
            deviation = group[name].std() if len(group) > 1 else float("nan")
            row[HEADINGS[name]] = f"{group[name].mean():.4g}" + ("" if pd.isna(deviation) else f" ± {deviation:.2g}")
        rows.append(row)
    return pd.DataFrame(rows)


def count_states(states: list[JobState], noun: str = "jobs") -> str:
    """Return the number of jobs in each state as a string: `9 jobs: 7 finished, 2 killed`."""
    counts = pd.Series([state.state for state in states]).value_counts(sort=False)
    noun = noun.removesuffix("s") if len(states) == 1 else noun
    return f"{len(states)} {noun}: " + ", ".join(f"{count} {state}" for state, count in counts.items())


def summary(folder: Path, continue_with: str = SAME_COMMAND) -> str:
    """Return the text that a sweep prints at its end; ``continue_with`` names the command that continues the sweep."""
    states = SweepFolder(folder).look()
    lines = ["", markdown(readable_table(states)), count_states(states)]
    if any(state.state not in (DONE, "invalid") for state in states):
        lines.append(f"{continue_with.capitalize()} continues the partial runs and starts the missing ones.")
    lines.append(f"Table, combined plots and logs of the jobs: {display_path(folder)}")
    return "\n".join(lines) + "\n"
