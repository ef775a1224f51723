"""Combined plots of a sweep: curves, final figures, heat maps. Lines and points are means over seeds and splits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from proxlearn.views.style import class_colours, plain_ticks, save
from proxlearn.views.sweep.sweep_data import Sweep, is_numeric

RISK, ACCURACY = "test_risk_weighted", "test_accuracy_weighted"
LABELS = {RISK: "test risk, weighted", ACCURACY: "test accuracy, weighted"}
MOST_PANELS = 12
MOST_LEGEND = 10
SYMBOLS = {"beta": "β", "epsilon": "ε", "delta": "δ"}


def draw_curves(sweep: Sweep) -> list[Path]:
    """Risk and accuracy over k: colour for the first parameter, a panel for each choice of the others."""
    paths = []
    for metric in metric_columns(sweep):
        rows = sweep.metrics[(sweep.metrics["step"] > 0) & sweep.metrics[metric].notna()]
        if rows["step"].nunique() < 2:
            continue
        made, all_axes = panels(sweep, rows, sweep.parameters[1:])
        colours = colours_of(sweep)
        for axes, part in all_axes:
            for value, colour in colours.items():
                mine = part if value is None else part[part[sweep.parameters[0]] == value]
                draw_band(axes, mine, metric, colour, value)
            axes.set(xscale="log", xlabel="recursion k")
            if metric == RISK:
                axes.set_yscale("log")
                plain_ticks(axes.yaxis)
        add_legend_and_save(made, all_axes, sweep, LABELS[metric], colours)
        paths += save(made, sweep.path, "curves_risk" if metric == RISK else "curves_accuracy")
    return paths


def draw_band(axes: Axes, rows: pd.DataFrame, metric: str, colour: str, value: str | None) -> None:
    """The mean over repeats at each step that all of them have reached, and their range."""
    if rows.empty:
        return
    grouped = rows.groupby("step")[metric].agg(["mean", "min", "max", "count"])
    whole = grouped[grouped["count"] == rows["job"].nunique()]
    marker = "o" if len(whole) < 3 else ""
    axes.plot(whole.index, whole["mean"], color=colour, marker=marker, label=value)
    if rows["job"].nunique() > 1:
        axes.fill_between(whole.index, whole["min"], whole["max"], color=colour, alpha=0.18, linewidth=0)


def draw_finals(sweep: Sweep) -> list[Path]:
    """The last figure of each run against the first parameter, where that is a number: colour for the second."""
    if not sweep.parameters or not is_numeric(sweep.values(sweep.parameters[0])):
        return []
    first, others = sweep.parameters[0], sweep.parameters[1:]
    paths = []
    for metric in metric_columns(sweep):
        made, all_axes = panels(sweep, sweep.final, others[1:])
        colours = colours_of(sweep, place=1)
        numbers = [float(value) for value in sweep.values(first)]
        log = min(numbers) > 0 and max(numbers) >= 10 * min(numbers)
        for axes, part in all_axes:
            for place, (value, colour) in enumerate(colours.items()):
                mine = part if value is None else part[part[others[0]] == value]
                found = mine.assign(x=mine[first].astype(float)).groupby("x")[metric].agg(["mean", "min", "max"])
                reach = [found["mean"] - found["min"], found["max"] - found["mean"]]
                # A little aside, so that equal figures do not hide each other.
                aside = place - (len(colours) - 1) / 2
                x = found.index * 1.04**aside if log else found.index + 0.006 * aside * (max(numbers) - min(numbers))
                axes.errorbar(
                    x, found["mean"], yerr=reach, fmt="o-", markersize=4, color=colour, capsize=2, label=value
                )
            if log:
                axes.set_xscale("log")
            axes.set_xlabel(symbol(first))
        add_legend_and_save(made, all_axes, sweep, f"{LABELS[metric]}, at the end", colours, others[:1])
        paths += save(made, sweep.path, "final_risk" if metric == RISK else "final_accuracy")
    return paths


def draw_heat_maps(sweep: Sweep) -> list[Path]:
    """The last figure for every pair of the first two parameters, mean over repeats."""
    if len(sweep.parameters) < 2:
        return []
    across, down = sweep.parameters[:2]
    paths = []
    for metric in metric_columns(sweep):
        final = sweep.final
        made, all_axes = panels(sweep, final, sweep.parameters[2:], 1.6 + 0.75 * len(sweep.values(across)))
        colour_map = matplotlib.colormaps["viridis" if metric == ACCURACY else "viridis_r"]
        limits = final.groupby(sweep.parameters)[metric].mean()
        low, high = float(limits.min()), float(limits.max())
        for axes, part in all_axes:
            pivot = part.pivot_table(index=down, columns=across, values=metric, aggfunc="mean")
            rows, columns = sweep.values(down)[::-1], sweep.values(across)
            means = pivot.reindex(index=rows, columns=columns).to_numpy(float)
            shown = axes.imshow(means, cmap=colour_map, vmin=low, vmax=high, aspect="auto")
            axes.grid(visible=False)
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.set(xlabel=symbol(across), ylabel=symbol(down))
            for row, column in product(range(len(rows)), range(len(columns))):
                value = float(means[row, column])
                if not math.isnan(value):
                    share = (value - low) / (high - low) if high > low else 0.5
                    dark = share < 0.5 if metric == ACCURACY else share > 0.5
                    axes.text(column, row, f"{value:.3g}", ha="center", va="center", color="white" if dark else "black")
        made.colorbar(shown, ax=[axes for axes, _ in all_axes], label=f"{LABELS[metric]}, mean over runs")
        paths += save(made, sweep.path, "heat_risk" if metric == RISK else "heat_accuracy")
    return paths


def metric_columns(sweep: Sweep) -> Iterator[str]:
    yield from (metric for metric in LABELS if metric in sweep.metrics and sweep.metrics[metric].notna().any())


def panels(
    sweep: Sweep, rows: pd.DataFrame, parameters: list[str], width: float = 4.2
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure with axes, and its rows, for each choice of ``parameters``."""
    choices = list(product(*(sweep.values(parameter) for parameter in parameters)))[:MOST_PANELS]
    columns = min(len(choices), 4)
    lines = math.ceil(len(choices) / columns)
    made = Figure(figsize=(min(1.2 + width * columns * (1 if columns == 1 else 0.72), 15), 3.3 * lines))
    made.set_layout_engine("constrained")
    grid = made.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    found = []
    for axes, choice in zip(grid, choices, strict=False):
        mine = rows
        for parameter, value in zip(parameters, choice, strict=True):
            mine = mine[mine[parameter] == value]
        axes.set_title(", ".join(f"{symbol(p)} = {v}" for p, v in zip(parameters, choice, strict=True)))
        found.append((axes, mine))
    for axes in grid[len(choices) :]:
        axes.remove()
    return made, found


def colours_of(sweep: Sweep, place: int = 0) -> dict[str | None, str]:
    """A colour for each value of a parameter: a scale for numbers, distinct ones for names."""
    if len(sweep.parameters) <= place:
        return {None: class_colours(2)[0]}
    values = sweep.values(sweep.parameters[place])
    if not is_numeric(values):
        return dict(zip(values, class_colours(max(3, len(values))), strict=False))
    scale = matplotlib.colormaps["viridis"]
    # The lightest end of the scale cannot be seen on white.
    return {value: to_hex(scale(0.9 * i / max(1, len(values) - 1))) for i, value in enumerate(values)}


def add_legend_and_save(
    made: Figure,
    all_axes: list[tuple[Axes, pd.DataFrame]],
    sweep: Sweep,
    label: str,
    colours: dict[str | None, str],
    legend: list[str] | None = None,
) -> None:
    """Names of the axes, and one legend for all panels."""
    made.supylabel(label, fontsize=9)
    title = (sweep.parameters[:1] if legend is None else legend) or [""]
    handles, labels = all_axes[0][0].get_legend_handles_labels()
    if title[0] and handles:
        step = max(1, math.ceil(len(handles) / MOST_LEGEND))
        made.legend(handles[::step], labels[::step], title=symbol(title[0]), loc="outside right upper")


def symbol(parameter: str) -> str:
    return SYMBOLS.get(parameter, parameter)
