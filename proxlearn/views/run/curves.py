"""Curves over the recursions: the risk, and the health of the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import ESTIMATE_COLOURS, GREY, THIRD, WEIGHTED, clip_for_drawing, figure, plain_ticks, save

SMALLEST_SHARE = 1e-45
"""Where a kernel share of exactly zero is drawn, on a logarithmic axis."""


def draw_risk(run: RunData) -> list[Path]:
    """Risk over k, with its title and its legend."""
    made, (axes,) = figure(5.0, 3.3)
    plot_risk(axes, run)
    axes.set_title(run.title)
    axes.legend()
    return save(made, run.path, "risk")


def plot_risk(axes: Axes, run: RunData) -> None:
    """Risk over k, log-log: both estimates, training and test part."""
    later = run.metrics[run.metrics["step"] > 0]
    curves = later if len(later) else run.metrics
    marker = "o" if len(curves) < 3 else ""
    for estimate, colour in ESTIMATE_COLOURS.items():
        for part, line, alpha in (("test", "-", 1.0), ("train", "--", 0.6)):
            values = clip_for_drawing(curves[f"{part}_risk_{estimate}"], log=True)
            axes.plot(
                curves["step"], values, line, marker=marker, color=colour, alpha=alpha, label=f"{part}, {estimate}"
            )
    if len(later):
        axes.set_xscale("log")
    if np.isfinite(axes.dataLim.y1):  # Otherwise nothing could be drawn, and a logarithmic axis has no range.
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    axes.set(xlabel="recursion k", ylabel="risk: mean of (y − f)²")


def draw_health(run: RunData) -> list[Path]:
    """Effective sample size, and the share of mass that the coupling moves between particles."""
    curves = run.metrics[run.metrics["step"] > 0]
    if len(curves) < 2:
        # A curve needs two points.
        return []
    made, (left, right) = figure(7.2, 3.0, columns=2)
    left.plot(curves["step"], curves["ess"], color=WEIGHTED)
    left.axhline(run.config["N"], color=GREY, linewidth=0.8, linestyle=":")
    left.annotate("N", (1, run.config["N"]), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=GREY)
    left.set(xlabel="recursion k", ylabel="effective sample size", title="weights", ylim=(0, 1.12 * run.config["N"]))
    share = curves["kernel_offdiag"].dropna()
    if len(share):
        shares = share.clip(lower=SMALLEST_SHARE)
        right.plot(curves.loc[share.index, "step"], shares, color=THIRD)
        unit = 2.0**-53 if run.status["dtype"] == "float64" else 2.0**-24
        right.axhline(unit, color=GREY, linewidth=0.8, linestyle=":")
        right.annotate(
            "rounding unit", (1, unit), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=GREY
        )
        right.set_yscale("log")
        # Shares that are all 1 would leave the line, and with it its label, outside of the axes.
        right.set_ylim(min(shares.min(), unit) / 10, max(shares.max(), unit) * 10)
    else:
        _write(right, "no proximal step")
    right.set(xlabel="recursion k", ylabel="largest off-diagonal share", title="kernel")
    for axes in (left, right):
        if len(curves):
            axes.set_xscale("log")
    return save(made, run.path, "health")


def _write(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
