"""The combined plots of a sweep: curves, final metrics and heat maps, from one table that contains all metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from proxlearn.files.safe_read import AbsentFile, UnreadableFile
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import JobState
from proxlearn.terminal.streams import notice
from proxlearn.views.run.run_data import read_metrics
from proxlearn.views.style import class_colours, plain_ticks, save

REPEATS = ("seed", "split_seed")
"""Swept keys that repeat an experiment instead of changing it; the plots show means over their values."""


@dataclass(frozen=True)
class SweepData:
    """The concatenated metrics of a sweep's jobs, with a column for each swept key."""

    path: Path
    parameters: list[str]
    """Swept keys that are not in REPEATS, in descending order of their numbers of values."""
    metrics: pd.DataFrame

    @property
    def final(self) -> pd.DataFrame:
        """The newest logged row of each job."""
        return self.metrics.loc[self.metrics.groupby("job")["step"].idxmax()]

    def values(self, parameter: str) -> list[str]:
        """Return the values of a swept key: numbers in ascending order, others in the order of the sweep."""
        values = list(dict.fromkeys(self.metrics[parameter]))
        return sorted(values, key=float) if is_numeric(values) else values


def read_sweep(folder: Path, states: list[JobState]) -> SweepData | None:
    """Read the metrics that the jobs have logged so far; return None if no job has logged metrics."""
    tables = []
    for state in states:
        if state.run is None or state.job.same_as is not None:
            continue
        try:
            metrics = read_metrics(RunFolder(state.run.folder).metrics)
        except AbsentFile:
            continue
        except UnreadableFile as error:
            notice(f"job {state.job.number} is not drawn: {error.problem}")
            continue
        metrics = metrics.assign(job=state.job.number)
        for key, value in state.job.values.items():
            metrics[key] = value
        tables.append(metrics)
    if not tables:
        return None
    combined = pd.concat(tables, ignore_index=True)
    parameters = varied_keys(states)
    parameters.sort(key=lambda key: -combined[key].nunique())
    return SweepData(folder, parameters, combined)


def varied_keys(states: list[JobState]) -> list[str]:
    """Return the swept keys that change the experiment; they are the same for all jobs of a sweep."""
    return [key for key in states[0].job.values if key not in REPEATS]


def is_numeric(values: list[str]) -> bool:
    """Return whether all strings in ``values`` denote numbers; NaN does not count as a number."""
    try:
        return all(float(value) == float(value) for value in values)
    except ValueError:
        return False


RISK, ACCURACY = "test_risk_weighted", "test_accuracy_weighted"
LABELS = {RISK: "test risk, weighted", ACCURACY: "test accuracy, weighted"}
MOST_PANELS = 12
MOST_COLUMNS = 4
MOST_LEGEND_ENTRIES = 10
SYMBOLS = {"beta": "β", "epsilon": "ε", "delta": "δ"}
Panel = tuple[Axes, pd.DataFrame]
"""The axes of a panel, and the rows of metrics that are drawn on them."""


def draw_curves(sweep: SweepData) -> list[Path]:
    """Draw the risk and the accuracy over the recursions k; return the paths of the plots.

    The colour shows the value of the first parameter. There is one panel per combination of values of the others.
    """
    paths = []
    for metric in logged_metrics(sweep):
        rows = sweep.metrics[(sweep.metrics["step"] > 0) & sweep.metrics[metric].notna()]
        if rows["step"].nunique() < 2:
            continue
        fig, panels = create_panels(sweep, rows, sweep.parameters[1:])
        colours = parameter_colours(sweep, 0)
        for axes, part in panels:
            for value, colour in colours.items():
                selected = part if value is None else part[part[sweep.parameters[0]] == value]
                plot_band(axes, selected, metric, colour, value)
            axes.set(xscale="log", xlabel="recursion k")
            plain_ticks(axes.xaxis)
            if metric == RISK:
                axes.set_yscale("log")
                plain_ticks(axes.yaxis)
        add_labels(fig, panels, LABELS[metric], sweep.parameters[:1])
        paths += save(fig, sweep.path, "curves_risk" if metric == RISK else "curves_accuracy")
    return paths


def plot_band(axes: Axes, rows: pd.DataFrame, metric: str, colour: str, label: str | None) -> None:
    """Plot the mean and the range of a metric over the repeats, at the steps that all repeats have reached."""
    if rows.empty:
        return
    repeats = rows["job"].nunique()
    grouped = rows.groupby("step")[metric].agg(["mean", "min", "max", "count"])
    complete = grouped[grouped["count"] == repeats]
    marker = "o" if len(complete) < 3 else ""
    axes.plot(complete.index, complete["mean"], color=colour, marker=marker, label=label)
    if repeats > 1:
        axes.fill_between(complete.index, complete["min"], complete["max"], color=colour, alpha=0.18, linewidth=0)


def draw_final_metrics(sweep: SweepData) -> list[Path]:
    """Draw the final metrics over the first parameter, if it has numeric values; the colour shows the second one."""
    if not sweep.parameters or not is_numeric(sweep.values(sweep.parameters[0])):
        return []
    first, others = sweep.parameters[0], sweep.parameters[1:]
    numbers = [float(value) for value in sweep.values(first)]
    log = min(numbers) > 0 and max(numbers) >= 10 * min(numbers)
    paths = []
    for metric in logged_metrics(sweep):
        fig, panels = create_panels(sweep, sweep.final, others[1:])
        colours = parameter_colours(sweep, 1)
        for axes, part in panels:
            for index, (value, colour) in enumerate(colours.items()):
                selected = part if value is None else part[part[others[0]] == value]
                final = (
                    selected.assign(x=selected[first].astype(float)).groupby("x")[metric].agg(["mean", "min", "max"])
                )
                ranges = [final["mean"] - final["min"], final["max"] - final["mean"]]
                # The points are shifted slightly, so that equal values do not hide one another.
                shift = index - (len(colours) - 1) / 2
                x = final.index * 1.04**shift if log else final.index + 0.006 * shift * (max(numbers) - min(numbers))
                axes.errorbar(
                    x, final["mean"], yerr=ranges, fmt="o-", markersize=4, color=colour, capsize=2, label=value
                )
            if log:
                axes.set_xscale("log")
            axes.set_xlabel(symbol(first))
        add_labels(fig, panels, f"{LABELS[metric]}, newest step", others[:1])
        paths += save(fig, sweep.path, "final_risk" if metric == RISK else "final_accuracy")
    return paths


def draw_heat_maps(sweep: SweepData) -> list[Path]:
    """Draw a heat map per metric: the mean final value for each pair of values of the first two parameters."""
    if len(sweep.parameters) < 2:
        return []
    across, down = sweep.parameters[:2]
    paths = []
    for metric in logged_metrics(sweep):
        final = sweep.final
        fig, panels = create_panels(sweep, final, sweep.parameters[2:], 1.6 + 0.75 * len(sweep.values(across)))
        colour_map = matplotlib.colormaps["viridis" if metric == ACCURACY else "viridis_r"]
        means = final.groupby(sweep.parameters)[metric].mean()
        low, high = float(means.min()), float(means.max())
        for axes, part in panels:
            pivot = part.pivot_table(index=down, columns=across, values=metric, aggfunc="mean")
            rows, columns = sweep.values(down)[::-1], sweep.values(across)
            cells = pivot.reindex(index=rows, columns=columns).to_numpy(float)
            image = axes.imshow(cells, cmap=colour_map, vmin=low, vmax=high, aspect="auto")
            axes.grid(visible=False)
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.set(xlabel=symbol(across), ylabel=symbol(down))
            for row, column in product(range(len(rows)), range(len(columns))):
                value = float(cells[row, column])
                if not math.isnan(value):
                    share = (value - low) / (high - low) if high > low else 0.5
                    dark = share < 0.5 if metric == ACCURACY else share > 0.5
                    axes.text(column, row, f"{value:.3g}", ha="center", va="center", color="white" if dark else "black")
        fig.colorbar(image, ax=[axes for axes, _ in panels], label=f"{LABELS[metric]}, mean over runs")
        paths += save(fig, sweep.path, "heat_risk" if metric == RISK else "heat_accuracy")
    return paths


def logged_metrics(sweep: SweepData) -> Iterator[str]:
    """Yield the metrics in LABELS that at least one run has logged."""
    yield from (metric for metric in LABELS if metric in sweep.metrics and sweep.metrics[metric].notna().any())


def create_panels(
    sweep: SweepData, rows: pd.DataFrame, parameters: list[str], width: float = 4.2
) -> tuple[Figure, list[Panel]]:
    """Create a figure with one panel for each of the first MOST_PANELS combinations of the values of ``parameters``.

    A panel is a pair: its axes, and the rows of the table to draw in them. ``width`` is the width of a single
    panel in inches; several panels beside each other are narrower.
    """
    combinations = list(product(*(sweep.values(parameter) for parameter in parameters)))[:MOST_PANELS]
    columns = min(len(combinations), MOST_COLUMNS)
    lines = math.ceil(len(combinations) / columns)
    fig = Figure(figsize=(min(1.2 + width * columns * (1 if columns == 1 else 0.72), 15), 3.3 * lines))
    fig.set_layout_engine("constrained")
    grid = fig.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    panels = []
    for axes, combination in zip(grid, combinations, strict=False):
        selected = rows
        for parameter, value in zip(parameters, combination, strict=True):
            selected = selected[selected[parameter] == value]
        axes.set_title(", ".join(f"{symbol(p)} = {v}" for p, v in zip(parameters, combination, strict=True)))
        panels.append((axes, selected))
    for axes in grid[len(combinations) :]:
        axes.remove()
    return fig, panels


def parameter_colours(sweep: SweepData, index: int) -> dict[str | None, str]:
    """Return a colour per value of the parameter at ``index``: a scale for numbers, distinct colours otherwise.

    If there is no such parameter, the only key is None, which stands for all rows.
    """
    if len(sweep.parameters) <= index:
        return {None: class_colours(2)[0]}
    values = sweep.values(sweep.parameters[index])
    if not is_numeric(values):
        return dict(zip(values, class_colours(max(3, len(values))), strict=False))
    scale = matplotlib.colormaps["viridis"]
    # The lightest end of the scale is invisible on white.
    return {value: to_hex(scale(0.9 * i / max(1, len(values) - 1))) for i, value in enumerate(values)}


def add_labels(fig: Figure, panels: list[Panel], label: str, coloured: list[str]) -> None:
    """Add the label of the y axes, and one legend for all panels if a parameter is shown by colour."""
    fig.supylabel(label, fontsize=9)
    handles, labels = panels[0][0].get_legend_handles_labels()
    if coloured and handles:
        step = max(1, math.ceil(len(handles) / MOST_LEGEND_ENTRIES))
        fig.legend(handles[::step], labels[::step], title=symbol(coloured[0]), loc="outside right upper")


def symbol(parameter: str) -> str:
    """Return the paper's symbol for a parameter, or the name of a parameter without a symbol."""
    return SYMBOLS.get(parameter, parameter)
