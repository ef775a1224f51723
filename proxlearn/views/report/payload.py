"""Collect the data of a report page as values for JSON; page.py escapes the text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from proxlearn import __version__
from proxlearn.compare.statistics import MeanSd
from proxlearn.core.tasks import ESTIMATES
from proxlearn.paper.published import Figures, PublishedExperiment, find_experiments
from proxlearn.run.sweep_folder import JobState
from proxlearn.views.report.report_runs import SINGLE_RUNS, ReportRuns, RunEntry, flatten
from proxlearn.views.run.run_data import RunData
from proxlearn.views.run.run_plots import SMALLEST_SHARE
from proxlearn.views.run.run_views import remarks, table_notes
from proxlearn.views.sweep.sweep_views import count_states, mean_over_seeds, readable_table
from proxlearn.views.tables import format_cell

Table = dict[str, Any]
"""A table as a dictionary: ``columns`` contains the headings, and ``rows`` contains the cells as text."""

PAPER_HEADING = "paper's"
"""Heading of a column with the paper's values for the metric in the preceding column."""
MOST_VALUES = 400_000
"""Maximum number of values in all curves of a page together; longer curves are thinned."""
MOST_ROWS, LEAST_ROWS = 600, 40
MOST_CLASSES = 60
"""Maximum number of classes for which a page shows the confusion matrix."""
METRIC_COLUMN = re.compile(r"(train|test)_(\w+?)_(weighted|unweighted|unweighted_saturated|particle)")
HEALTH_COLUMNS = ("ess", "kernel_offdiag", "sinkhorn_rounds", "free_energy", "entropy", "discrete_free_energy")


def page_payload(report: ReportRuns, clouds: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Return everything that the page shows.

    ``clouds`` has one entry per run, in the order of the runs; the entry of a run without a cloud is None.
    """
    rows = max(LEAST_ROWS, min(MOST_ROWS, MOST_VALUES // (30 * len(report.runs))))
    return {
        "title": report.title,
        "version": __version__,
        "parameters": report.parameters,
        "sweeps": [_sweep_payload(name, states, report) for name, states in report.tables.items()],
        "quantities": _logged_metrics(report.runs),
        "risk_label": _risk_label(report.runs),
        "runs": [run_payload(entry, cloud, rows) for entry, cloud in zip(report.runs, clouds, strict=True)],
    }


def run_payload(entry: RunEntry, cloud: dict[str, Any] | None, rows: int) -> dict[str, Any]:
    """Return the data that the page shows about one run; its curves have at most ``rows`` rows."""
    run = entry.run
    experiments = find_experiments(run.config)
    notes = [] if run.accuracy is None else [" ".join(note.split()) for note in table_notes(run.accuracy)]
    return {
        "name": entry.name,
        "title": run.title,
        "folder": run.path.name,
        "values": entry.values,
        "state": entry.state,
        "step": int(run.status["step"]),
        "N": float(run.config["N"]),
        "unit": run.rounding_unit,
        "about": run_properties(entry),
        "config": [[key, str(value)] for key, value in flatten(run.config).items()],
        "results": results_table(run, experiments),
        "results_note": run.results_note,
        "notes": [*notes, *_paper_notes(run, experiments), *remarks(run)],
        "curves": curves(run.metrics, rows),
        "confusion": confusion(run),
        "cloud": cloud,
    }


def run_properties(entry: RunEntry) -> list[list[str]]:
    """Return the properties of a run, such as its state, machine and versions, as pairs of a name and a value."""
    status = entry.run.status
    threads = "1 thread" if status.get("threads") == 1 else f"{status.get('threads')} threads"
    properties = {
        "state": entry.state,
        "recursions": f"{status['step']} of {status.get('steps')}",
        "selected": ", ".join(f"{key}={value}" for key, value in _items(status.get("selected"))),
        "kappa": None if entry.run.kappa is None else f"{entry.run.kappa:.4g}",
        "seconds": status.get("seconds"),
        "started": status.get("started"),
        "machine": f"{status.get('host')}: {status.get('device')}, {threads}",
        "engine": f"{status.get('engine')}, {status.get('dtype')}",
        "versions": ", ".join(f"{key} {value}" for key, value in _items(status.get("versions"))),
        "command": status.get("command"),
        "data, sha256": status.get("data_sha256"),
        "error": status.get("error"),
    }
    return [[key, str(value)] for key, value in properties.items() if value not in (None, "")]


def _items(values: Any) -> Iterable[tuple[Any, Any]]:
    """Return the items of a group in status.json, or nothing if the value is not a dictionary."""
    return values.items() if isinstance(values, dict) else ()


def as_table(frame: pd.DataFrame) -> Table:
    """Return a data frame as a table of formatted cells."""
    return {
        "columns": [str(name) for name in frame.columns],
        "rows": [[format_cell(value) for value in row] for row in frame.itertuples(index=False)],
    }


def results_table(run: RunData, experiments: list[PublishedExperiment]) -> Table | None:
    """Return accuracy.csv as a table with the paper's values, or None if the run has no accuracy.csv."""
    if run.accuracy is None:
        return None
    table = as_table(run.accuracy)
    published = _published_values(experiments, run.results_step)
    for metric in dict.fromkeys(key[2] for key in published):
        _insert_paper_column(table, metric, [published.get((row[0], row[1], metric)) for row in table["rows"]])
    return table


def curves(metrics: pd.DataFrame, rows: int) -> dict[str, Any]:
    """Return the curves of the logged metrics, thinned to at most ``rows`` rows.

    Half of the remaining rows are evenly spaced, and the others are evenly spaced on a logarithmic scale.
    """
    numbers = metrics.apply(pd.to_numeric, errors="coerce")
    total = len(numbers)
    if total > rows:
        even = np.linspace(0, total - 1, rows // 2)
        log_even = np.geomspace(1, total, rows - rows // 2) - 1
        numbers = numbers.iloc[np.unique(np.concatenate((even, log_even)).round().astype(int))]
    if "kernel_offdiag" in numbers:
        # A share of zero would not be visible on a logarithmic axis, and tiny shares would stretch it.
        numbers = numbers.assign(kernel_offdiag=numbers["kernel_offdiag"].clip(lower=SMALLEST_SHARE))
    names = [name for name in numbers.columns if METRIC_COLUMN.fullmatch(str(name)) or name in HEALTH_COLUMNS]
    return {
        "step": [int(step) for step in numbers["step"]],
        "logged": total,
        "columns": {str(name): shorten(numbers[name]) for name in names if numbers[name].notna().any()},
    }


def confusion(run: RunData) -> dict[str, Any] | None:
    """Return the confusion matrices of the test part by estimate, or None if there are no classes or no results.

    The rows of a matrix are the actual classes. With more than MOST_CLASSES classes, the matrices are left out.
    """
    table, classes = run.confusion, [str(name) for name in run.model.get("classes") or []]
    if table is None or not classes:
        return None
    if len(classes) > MOST_CLASSES:
        return {"classes": [], "omitted": len(classes)}
    payload: dict[str, Any] = {"classes": classes}
    for estimate in ESTIMATES:
        matrix = np.zeros((len(classes), len(classes)), dtype=int)
        cells = table[(table["part"] == "test") & (table["estimate"] == estimate)]
        valid = cells["actual"].between(0, len(classes) - 1) & cells["predicted"].between(0, len(classes) - 1)
        matrix[cells["actual"][valid], cells["predicted"][valid]] = cells["count"][valid]
        payload[estimate] = matrix.tolist()
    return payload


def shorten(values: Iterable[float]) -> list[float | None]:
    """Return the values rounded to five significant digits, with None for values that are not finite."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]


def _logged_metrics(runs: list[RunEntry]) -> dict[str, list[str]]:
    """Return, for each metric, the estimates for which at least one run has logged it."""
    metrics: dict[str, dict[str, None]] = {}
    for entry in runs:
        for name in entry.run.metrics.columns:
            match = METRIC_COLUMN.fullmatch(str(name))
            if match:
                metrics.setdefault(match[2], {})[match[3]] = None
    return {metric: list(estimates) for metric, estimates in metrics.items()}


def _risk_label(runs: list[RunEntry]) -> str:
    """Return the label of the chart of the risk, which shows the curves of all runs."""
    labels = {entry.run.risk_label for entry in runs}
    return labels.pop() if len(labels) == 1 else "risk: mean loss (the runs have different losses)"


def _sweep_payload(name: str, states: list[JobState], report: ReportRuns) -> dict[str, Any]:
    means = mean_over_seeds(states)
    table = as_table(readable_table(states))
    experiments = {entry.run.path: find_experiments(entry.run.config) for entry in report.runs}
    published = [
        # This table shows the metrics of the newest logged row.
        _published_values(experiments.get(state.run.folder, []), state.run.newest_step) if state.run else {}
        for state in states
    ]
    for metric in ("accuracy", "risk"):
        key = ("test", "weighted", metric)
        _insert_paper_column(table, metric, [values.get(key) for values in published])
    return {
        "name": name,
        "counts": count_states(states, "runs" if name == SINGLE_RUNS else "jobs"),
        "table": table,
        "averages": None if means is None else as_table(means),
    }


def _published_values(experiments: list[PublishedExperiment], step: int | None) -> Figures:
    """Return the paper's values for the experiments that end at ``step``; values at other steps are not comparable."""
    return {
        key: value
        for experiment in experiments
        if experiment.steps == step
        for key, value in experiment.figures.items()
    }


def _insert_paper_column(table: Table, metric: str, published: list[MeanSd | None]) -> None:
    """Insert a column with the paper's values, if there are any, after the column of a metric."""
    if metric not in table["columns"] or not any(published):
        return
    index = table["columns"].index(metric) + 1
    table["columns"].insert(index, PAPER_HEADING)
    for row, value in zip(table["rows"], published, strict=True):
        row.insert(index, "" if value is None else value.text(5 if "risk" in metric else 4))


def _paper_notes(run: RunData, experiments: list[PublishedExperiment]) -> list[str]:
    """Return notes on the source of the paper's values, or on why they are not shown."""
    reason = "these results belong to another step" if run.results_note else f"this run has {run.status['step']}"
    return [
        f'"paper\'s": {experiment.source} of the paper, after {experiment.steps} recursions.'
        if experiment.steps == run.results_step
        else f"The settings match {experiment.source} of the paper, whose values are for {experiment.steps} "
        f"recursions; {reason}, so the paper's values are not shown."
        for experiment in experiments
    ]
