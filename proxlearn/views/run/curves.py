"""Plot the risk, the effective sample size and the off-diagonal share of the kernel over the recursions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import (
    ESTIMATE_LINES,
    GREY,
    SINGLE_PLOT,
    THIRD,
    WEIGHTED,
    clip_for_drawing,
    figure,
    plain_ticks,
    save,
)

SMALLEST_SHARE = 1e-45
"""The value at which a kernel share of exactly zero is drawn on a logarithmic axis."""


def draw_risk(run: RunData) -> list[Path]:
    """Draw risk.png and risk.pdf: the risk over the recursions k."""
    fig, (axes,) = figure(*SINGLE_PLOT)
    plot_risk(axes, run)
    axes.set_title(run.title)
    axes.legend()
    return save(fig, run.path, "risk")


def plot_risk(axes: Axes, run: RunData) -> None:
    """Plot the risk over the recursions k on logarithmic axes, for both estimates and both parts of the data."""
    logged = run.metrics[run.metrics["step"] > 0]
    curves = logged if len(logged) else run.metrics
    marker = "o" if len(curves) < 3 else ""
    for estimate, style in ESTIMATE_LINES.items():
        for part, linestyle, alpha, width in (("test", "-", 1.0, 1.0), ("train", "--", 0.6, 0.7)):
            axes.plot(
                curves["step"],
                clip_for_drawing(curves[f"{part}_risk_{estimate}"], log=True),
                marker=marker,
                alpha=alpha,
                label=f"{part}, {estimate}",
                **style | {"linestyle": linestyle, "linewidth": width * style["linewidth"]},
            )
    if len(logged):
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
    if np.isfinite(axes.dataLim.y1):  # Otherwise no value can be drawn, and a logarithmic axis has no range.
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    axes.set(xlabel="recursion k", ylabel="risk: mean of (y − f)²")


def draw_health(run: RunData) -> list[Path]:
    """Draw health.png and health.pdf: the effective sample size and the largest off-diagonal share of the kernel."""
    curves = run.metrics[run.metrics["step"] > 0]
    if len(curves) < 2:
        # A curve needs two points.
        return []
    fig, (left, right) = figure(7.2, 3.0, columns=2)
    left.plot(curves["step"], curves["ess"], color=WEIGHTED)
    _mark_level(left, run.config["N"], "N")
    left.set(xlabel="recursion k", ylabel="effective sample size", title="weights", ylim=(0, 1.12 * run.config["N"]))
    offdiagonal = curves["kernel_offdiag"].dropna()
    if len(offdiagonal):
        shares = offdiagonal.clip(lower=SMALLEST_SHARE)
        right.plot(curves.loc[offdiagonal.index, "step"], shares, color=THIRD)
        unit = run.rounding_unit
        _mark_level(right, unit, "rounding unit")
        right.set_yscale("log")
        # If all shares are 1, the default limits leave the line of the rounding unit and its label outside.
        right.set_ylim(min(shares.min(), unit) / 10, max(shares.max(), unit) * 10)
    else:
        right.text(0.5, 0.5, "no proximal step", transform=right.transAxes, ha="center", va="center", color=GREY)
    right.set(xlabel="recursion k", ylabel="largest off-diagonal share", title="kernel")
    for axes in (left, right):
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
    return save(fig, run.path, "health")


def _mark_level(axes: Axes, level: float, label: str) -> None:
    """Draw a dotted horizontal line with a label at its right end."""
    axes.axhline(level, color=GREY, linewidth=0.8, linestyle=":")
    axes.annotate(label, (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=GREY)
