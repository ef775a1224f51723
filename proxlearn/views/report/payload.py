"""A page's data: runs as plain values for JSON. Every string stays a string; nothing here knows of HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from proxlearn import __version__
from proxlearn.compare.statistics import MeanSd
from proxlearn.core.scores import ESTIMATES
from proxlearn.paper.published import Figures
from proxlearn.paper.published import PublishedExperiment as Experiment
from proxlearn.paper.published import find_experiments as printed
from proxlearn.run.sweep_folder import JobState
from proxlearn.views.report.report_runs import ReportRuns, RunEntry, flat
from proxlearn.views.run.curves import SMALLEST_SHARE
from proxlearn.views.run.tables import MORE_NOTES, NOTE, cell, remarks
from proxlearn.views.sweep.sweep_views import counts, mean_over_seeds, readable_table

Table = dict[str, Any]
"""columns: headings; rows: cells, all of them text."""

PAPERS = "paper's"
"""The heading of a column of the paper's figures: of the quantity before it."""
MOST_VALUES = 400_000
"""Of all curves of a page together: a run that logged every step is thinned."""
MOST_ROWS, LEAST_ROWS = 600, 40
MOST_CLASSES = 60
"""Of a confusion matrix on a page."""
FIGURE = re.compile(r"(train|test)_(\w+?)_(weighted|unweighted|unweighted_saturated|particle)")
HEALTH = ("ess", "kernel_offdiag", "sinkhorn_rounds", "discrete_free_energy")


def page_data(source: ReportRuns, clouds: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Everything that the page shows; ``clouds`` are the runs' own, in their order."""
    rows = max(LEAST_ROWS, min(MOST_ROWS, MOST_VALUES // (30 * len(source.runs))))
    return {
        "title": source.title,
        "version": __version__,
        "parameters": source.parameters,
        "sweeps": [_sweep(name, states, source) for name, states in source.tables.items()],
        "quantities": _quantities(source.runs),
        "runs": [run_data(shown, cloud, rows) for shown, cloud in zip(source.runs, clouds, strict=True)],
    }


def run_data(shown: RunEntry, cloud: dict[str, Any] | None, rows: int) -> dict[str, Any]:
    run = shown.run
    paper = printed(run.config)
    return {
        "name": shown.name,
        "title": run.title,
        "folder": run.path.name,
        "values": shown.values,
        "state": shown.state,
        "step": int(run.status["step"]),
        "N": float(run.config["N"]),
        "unit": 2.0**-53 if run.status.get("dtype") == "float64" else 2.0**-24,
        "about": run_summary(shown),
        "config": [[key, str(value)] for key, value in flat(run.config).items()],
        "figures": figures(shown, paper),
        "figures_note": run.figures_note,
        "notes": [*_notes(run.accuracy), *_paper_notes(shown, paper), *remarks(run)],
        "curves": curves(run.metrics, rows),
        "confusion": confusion(shown),
        "cloud": cloud,
    }


def run_summary(shown: RunEntry) -> list[list[str]]:
    """What was run: version, machine, time."""
    status = shown.run.status
    known = {
        "state": shown.state,
        "recursions": f"{status['step']} of {status.get('steps')}",
        "selected": ", ".join(f"{key}={value}" for key, value in _items(status.get("selected"))),
        "seconds": status.get("seconds"),
        "started": status.get("started"),
        "machine": f"{status.get('host')}: {status.get('device')}, {status.get('threads')} threads",
        "engine": f"{status.get('engine')}, {status.get('dtype')}",
        "versions": ", ".join(f"{key} {value}" for key, value in _items(status.get("versions"))),
        "command": status.get("command"),
        "data, sha256": status.get("data_sha256"),
        "error": status.get("error"),
    }
    return [[key, str(value)] for key, value in known.items() if value not in (None, "")]


def _items(values: Any) -> Iterable[tuple[Any, Any]]:
    """Of a group in a status file that anybody may have written."""
    return values.items() if isinstance(values, dict) else ()


def table_of(frame: pd.DataFrame) -> Table:
    return {
        "columns": [str(name) for name in frame.columns],
        "rows": [[cell(value) for value in row] for row in frame.itertuples(index=False)],
    }


def figures(shown: RunEntry, paper: list[Experiment]) -> Table | None:
    """accuracy.csv, with the paper's figures beside ours where this run is its experiment, of the same length."""
    if shown.run.accuracy is None:
        return None
    made = table_of(shown.run.accuracy)
    known = _figures(paper, shown.run.figures_step)
    for quantity in dict.fromkeys(key[2] for key in known):
        _insert_paper_column(made, quantity, [known.get((row[0], row[1], quantity)) for row in made["rows"]])
    return made


def curves(metrics: pd.DataFrame, rows: int) -> dict[str, Any]:
    """The logged figures by column; of very many rows some, evenly and log-evenly chosen, the first and last too."""
    numbers = metrics.apply(pd.to_numeric, errors="coerce")
    total = len(numbers)
    if total > rows:
        even = np.linspace(0, total - 1, rows // 2)
        spaced = np.geomspace(1, total, rows - rows // 2) - 1
        numbers = numbers.iloc[np.unique(np.concatenate((even, spaced)).round().astype(int))]
    if "kernel_offdiag" in numbers:
        # A share of exactly zero has its place on a logarithmic axis too.
        numbers = numbers.assign(kernel_offdiag=numbers["kernel_offdiag"].clip(lower=SMALLEST_SHARE))
    kept = [name for name in numbers.columns if FIGURE.fullmatch(str(name)) or name in HEALTH]
    return {
        "step": [int(step) for step in numbers["step"]],
        "logged": total,
        "columns": {str(name): short(numbers[name]) for name in kept if numbers[name].notna().any()},
    }


def confusion(shown: RunEntry) -> dict[str, Any] | None:
    """Counts of the test part by both estimates: rows are the actual classes."""
    found, classes = shown.run.confusion, [str(name) for name in shown.run.model.get("classes") or []]
    if found is None or not classes:
        return None
    if len(classes) > MOST_CLASSES:
        return {"classes": [], "omitted": len(classes)}
    made: dict[str, Any] = {"classes": classes}
    for estimate in ESTIMATES:
        counts_of = np.zeros((len(classes), len(classes)), dtype=int)
        cells = found[(found["part"] == "test") & (found["estimate"] == estimate)]
        known = cells["actual"].between(0, len(classes) - 1) & cells["predicted"].between(0, len(classes) - 1)
        counts_of[cells["actual"][known], cells["predicted"][known]] = cells["count"][known]
        made[estimate] = counts_of.tolist()
    return made


def short(values: Iterable[float]) -> list[float | None]:
    """Five digits are more than a screen shows; what is not finite is nothing."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]


def _quantities(runs: list[RunEntry]) -> dict[str, list[str]]:
    """Quantity -> its estimates, of all that the runs have logged."""
    found: dict[str, dict[str, None]] = {}
    for shown in runs:
        for name in shown.run.metrics.columns:
            matched = FIGURE.fullmatch(str(name))
            if matched:
                found.setdefault(matched[2], {})[matched[3]] = None
    return {quantity: list(estimates) for quantity, estimates in found.items()}


def _sweep(name: str, states: list[JobState], source: ReportRuns) -> dict[str, Any]:
    averages = mean_over_seeds(states)
    table = table_of(readable_table(states))
    paper = {shown.run.path: printed(shown.run.config) for shown in source.runs}
    theirs = [
        # The table's figures are those of the newest logged row.
        _figures(paper.get(state.run.folder, []), state.run.newest_step) if state.run else {}
        for state in states
    ]
    for quantity in ("accuracy", "risk"):
        key = ("test", "weighted", quantity)
        _insert_paper_column(table, quantity, [figures_of.get(key) for figures_of in theirs])
    return {
        "name": name,
        "counts": counts(states),
        "table": table,
        "averages": None if averages is None else table_of(averages),
    }


def _figures(paper: list[Experiment], step: int | None) -> Figures:
    """Those of experiments that end at this step: a shorter or longer run is another one."""
    return {key: value for each in paper if each.steps == step for key, value in each.figures.items()}


def _insert_paper_column(table: Table, quantity: str, theirs: list[MeanSd | None]) -> None:
    """A column of the paper's figures after that of a quantity, where there are any."""
    if quantity not in table["columns"] or not any(theirs):
        return
    place = table["columns"].index(quantity) + 1
    table["columns"].insert(place, PAPERS)
    for row, figure in zip(table["rows"], theirs, strict=True):
        row.insert(place, "" if figure is None else figure.text(5 if "risk" in quantity else 4))


def _notes(accuracy: pd.DataFrame | None) -> list[str]:
    if accuracy is None:
        return []
    return [
        " ".join(text.split())
        for row, text in {"weighted": NOTE, **MORE_NOTES}.items()
        if row in set(accuracy["estimate"])
    ]


def _paper_notes(shown: RunEntry, paper: list[Experiment]) -> list[str]:
    """Where the paper's figures are from, or after how many recursions this run could be compared with them."""
    run = shown.run
    ours = "those here are of another step" if run.figures_note else f"this run has made {run.status['step']}"
    return [
        f'"paper\'s": {each.source} of the paper, after {each.steps} recursions.'
        if each.steps == run.figures_step
        else f"These are the settings of {each.source} of the paper, whose figures are of {each.steps} recursions; "
        f"{ours}, so they are not shown beside it."
        for each in paper
    ]
