"""Draw Figures 2 to 5 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from proxlearn.paper.archive import Archive, ArchivedRun
from proxlearn.paper.curves_page import PublishedPanel, curve_distance, find_panel, published_curve
from proxlearn.paper.result_table import sources
from proxlearn.views.style import (
    ESTIMATE_COLOURS,
    ESTIMATE_LINES,
    GREY,
    WEIGHTED,
    figure,
    house_style,
    plain_ticks,
    save,
)


def fig2(archive: Archive) -> list[Path]:
    """Draw the risk on WDBC as a function of k: a line for beta=0.05 and a shaded range over all values of beta.

    The left panel shows the risk on the training rows, as the published figure does, although the paper says that
    the figure shows test data.
    """
    panels = (archive.runs("table1-float64", "table1"), archive.runs("table2"))
    with house_style():
        drawing, axes = figure(7.0, 3.1, columns=2)
        for panel, runs, name in zip(axes, panels, ("fig2a", "fig2b"), strict=True):
            main = [run for run in runs if run["beta"] == 0.05][:1]
            by_beta = {run["beta"]: run for run in reversed(runs)}
            published = find_panel(name)
            for estimate in ESTIMATE_COLOURS:
                _line_and_range(panel, main, list(by_beta.values()), published.column(estimate), estimate)
                _published_points(panel, published, main, estimate)
            part = "training" if published.part == "train" else "test"
            _logarithmic(panel, f"{part} risk, 0.5 ‖label − g‖ / n")
        precision = "".join(f" (line in {run['device']['dtype']}, shade in float32)" for run in panels[0][:1])
        axes[0].set_title(f"Table 1, training rows{precision}", fontsize=8)
        axes[1].set_title("Table 2, test rows (float32, then float64 if need be)", fontsize=8)
        _headline(drawing, axes[0], "WDBC; line: β = 0.05, shade: from β = 0.03 to 0.07")
        return save(drawing, archive.root, "fig2", about=_about("fig2", [run for runs in panels for run in runs]))


def fig3(archive: Archive) -> list[Path]:
    """Draw the risk on SHD as a function of k: the range of the short runs, and the curve of the long run."""
    short, long = archive.runs("fig3-start"), archive.runs("fig3")
    with house_style():
        drawing, axes = figure(7.0, 3.1, columns=2)
        formulas = {"risk": "mean of (1 − f)²", "risk_paper": "‖1 − f‖ / n"}
        for panel, (metric, formula) in zip(axes, formulas.items(), strict=True):
            for estimate in ESTIMATE_COLOURS:
                _line_and_range(panel, long, short, f"test_{metric}_{estimate}", estimate)
                if metric == find_panel("fig3").metric:
                    _published_points(panel, find_panel("fig3"), long, estimate)
            _logarithmic(panel, f"test risk, {formula}")
        _headline(drawing, axes[0], f"SHD; line: one long run, shade: range of {len(short)} short runs")
        return save(drawing, archive.root, "fig3", about=_about("fig3", [*short, *long]))


def fig4(archive: Archive) -> list[Path]:
    """Draw the risk on the sine as a function of k, with three insets that show the learned function."""
    runs = archive.runs("fig4")
    with house_style():
        drawing, (axes,) = figure(6.0, 3.8)
        for run in runs:
            later = run.metrics[run.metrics["step"] > 0]
            for estimate in ESTIMATE_COLOURS:
                axes.plot(later["step"], later[f"test_risk_{estimate}"], label=estimate, **ESTIMATE_LINES[estimate])
        _logarithmic(axes, "test risk: mean of (sin x − f)²")
        low, high = axes.get_ylim()
        axes.set_ylim(low * (low / high) ** 0.75, high)
        axes.plot([], [], color=GREY, linewidth=0.9, label="sin x, in the insets")
        # The legend is below the first, flat part of the curves and above the insets.
        axes.legend(loc="center left", bbox_to_anchor=(0.04, 0.72))
        for run in runs:
            for number, step in enumerate(sorted(run.clouds)):
                _inset(axes, run, step, 0.03 + 0.325 * number)
        return save(drawing, archive.root, "fig4", about=_about("fig4", runs))


def _inset(axes: Axes, run: ArchivedRun, step: int, left: float) -> None:
    """Draw the function that the run has learned at ``step`` in an inset, and mark the step on the risk curve.

    ``left`` is the left edge of the inset as a fraction of the width of ``axes``.
    """
    inset = axes.inset_axes((left, 0.05, 0.29, 0.40))
    x = np.linspace(-np.pi, np.pi, 200)
    inset.plot(x, np.sin(x), color=GREY, linewidth=0.9)
    for estimate, f in run.model(step).values(x[:, None]).items():
        inset.plot(x, f, **ESTIMATE_LINES[estimate] | {"linewidth": 1.4})
    inset.set_title(f"k = {step}", fontsize=8, pad=2)
    inset.set(xticks=[], yticks=[], ylim=(-1.25, 1.25))
    row = run.metrics[run.metrics["step"] == step]
    axes.plot(row["step"], row["test_risk_weighted"], "o", color=WEIGHTED, markersize=4.5)


def fig5(archive: Archive) -> list[Path]:
    """Draw the function that each of the randomised runs learned for the sine."""
    runs = archive.runs("fig5")
    with house_style():
        drawing, (axes,) = figure(3.6, 2.9)
        x = np.linspace(-np.pi, np.pi, 200)
        for run in runs:
            if run.clouds:
                f = run.model(max(run.clouds)).values(x[:, None])["weighted"]
                axes.plot(x, f, color=WEIGHTED, linewidth=0.7, alpha=0.6)
        last_step = max((run.last_step for run in runs), default=0)
        axes.plot([], [], color=WEIGHTED, linewidth=0.9, label=f"{len(runs)} runs, k = {last_step}")
        axes.plot(x, np.sin(x), "--", color="black", linewidth=1.2, label="sin x")
        axes.set(xlabel="x", ylabel="f (weighted)")
        axes.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
        axes.legend()
        return save(drawing, archive.root, "fig5", about=_about("fig5", runs))


def _line_and_range(axes: Axes, main: list[ArchivedRun], runs: list[ArchivedRun], column: str, label: str) -> None:
    """Draw the curve of each run in ``main``, and shade the range of ``runs`` at the steps that all ``runs`` logged.

    If ``main`` is empty, the mean of ``runs`` is drawn as the curve.
    """
    table, colour = _side_by_side(runs, column), ESTIMATE_COLOURS[label]
    width = 1.8 if label == "weighted" else 0.9
    axes.fill_between(table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.22, linewidth=0)
    for run in main:
        later = run.metrics[run.metrics["step"] > 0]
        axes.plot(later["step"], later[column], label=label, **ESTIMATE_LINES[label] | {"linewidth": width})
    if not main and len(table):
        axes.plot(table.index, table.mean(axis=1), label=label, **ESTIMATE_LINES[label] | {"linewidth": width})


def _published_points(axes: Axes, panel: PublishedPanel, runs: list[ArchivedRun], estimate: str) -> None:
    """Draw the points of a published curve; a text in the lower left corner states how far ``runs`` are from them."""
    curve = published_curve(panel.figure, estimate)
    marker = {"weighted": "o", "unweighted": "x"}[estimate]
    colour = ESTIMATE_COLOURS[estimate]
    # The face colour matters only for the circles, which are drawn empty.
    style: dict[str, Any] = {"color": colour, "markerfacecolor": "none", "markersize": 3.2, "markeredgewidth": 0.8}
    axes.plot(curve["k"], curve["risk"], marker, label=f"{estimate}, published", **style)
    distances = [curve_distance([run], panel, estimate) for run in runs]
    for distance in distances:
        if distance is not None:
            since = f" from k = {panel.first_step:.0e}".replace("e+0", "e") if panel.first_step > 1 else ""
            text = f"{estimate}: within {100 * abs(distance.largest):.1f} %{since}"
            height = 0.05 if estimate == "unweighted" else 0.12
            axes.text(0.03, height, text, transform=axes.transAxes, fontsize=7.5, color=colour)


def _side_by_side(runs: list[ArchivedRun], column: str) -> pd.DataFrame:
    """Return a metric of several runs, with one column per run, at the steps above 0 that all runs have logged."""
    series = [run.metrics.set_index("step")[column].drop(0, errors="ignore") for run in runs]
    return pd.concat(series, axis=1, join="inner") if series else pd.DataFrame()


def _headline(drawing: Figure, panel: Axes, text: str) -> None:
    """Put the title and the legend above the panels, because there may be no space inside them."""
    # The second, empty line of the title reserves space for the legend.
    drawing.suptitle(f"{text}\n", fontsize=9, x=0.02, y=0.985, ha="left")
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.01, 0.945), "borderpad": 0.2}
    drawing.legend(*panel.get_legend_handles_labels(), ncols=4, **place)


def _logarithmic(axes: Axes, label: str) -> None:
    axes.set(xlabel="recursion k", ylabel=label)
    if axes.lines:
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        plain_ticks(axes.yaxis)


def _about(name: str, runs: Sequence[ArchivedRun]) -> str:
    """Return the description of a figure that is stored in the metadata of its files."""
    return "\n".join(sources(name, runs))
