"""Plot the decision regions of both estimates for data with two features, and the points of the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D

from proxlearn.predict.model import Model
from proxlearn.predict.model_loader import find_model
from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import ESTIMATE_LINES, class_colours, escape_mathtext, figure, save

GRID = 300
"""Number of grid points per side at which classes are predicted."""
MARGIN = 0.05
"""Margin on each side, as a share of the range of the data."""


def draw_regions(run: RunData) -> list[Path]:
    """Draw regions.png and regions.pdf: the decision regions of the newest cloud."""
    model = find_model(run.path)
    if run.points is None or model is None:
        return []
    fig, (axes,) = figure(5.6, 4.0)
    handles = plot_regions(axes, run, run.points, model)
    fig.suptitle(f"{run.title}, k={model.cloud.step}: test part and decision regions", fontsize=9)
    # Only the constrained layout reserves space for an outside legend; other plots use the faster tight layout.
    fig.set_layout_engine("constrained")
    fig.legend(handles=handles, loc="outside right center")
    return save(fig, run.path, "regions")


def plot_regions(axes: Axes, run: RunData, points: pd.DataFrame, model: Model, size: int = GRID) -> list[Line2D]:
    """Plot the decision regions, their boundaries and the test points; return the handles for a legend.

    The shade shows the class that the weighted estimate predicts, the lines are the boundaries of both estimates, and
    the points are the test part, coloured by class.
    """
    classes = run.model["classes"]
    x0, x1 = (axis_range(points[name].to_numpy(), size) for name in ("x0", "x1"))
    grid = np.stack([coordinate.ravel() for coordinate in np.meshgrid(x0, x1)], axis=1)
    predicted = {estimate: labels.reshape(size, size) for estimate, labels in model.labels(grid).items()}
    colours = class_colours(len(classes))
    axes.pcolormesh(
        x0,
        x1,
        predicted["weighted"],
        cmap=ListedColormap(colours),
        norm=BoundaryNorm(np.arange(len(classes) + 1) - 0.5, len(classes)),
        alpha=0.16,
        shading="nearest",
        rasterized=True,
        linewidth=0,
    )
    test = points.query("part == 'test'")
    dot = 5.0 if len(test) < 300 else 3.0
    handles = []
    for index, (name, colour) in enumerate(zip(classes, colours, strict=True)):
        members = test[test["target"] == index]
        axes.plot(members["x0"], members["x1"], "o", color=colour, markersize=dot, alpha=0.75, markeredgewidth=0)
        handles.append(
            Line2D([], [], marker="o", linestyle="", markersize=4, color=colour, label=escape_mathtext(f"class {name}"))
        )
    handles += [_plot_boundary(axes, x0, x1, labels, len(classes), estimate) for estimate, labels in predicted.items()]
    x_name, y_name = map(escape_mathtext, run.model["columns"])
    axes.set(xlabel=x_name, ylabel=y_name)
    axes.grid(False)
    return handles


def axis_range(values: np.ndarray, count: int) -> np.ndarray:
    """Return ``count`` points evenly spaced over the range of the data plus a margin."""
    margin = MARGIN * (values.max() - values.min())
    return np.linspace(values.min() - margin, values.max() + margin, count)


def _plot_boundary(axes: Axes, x0: np.ndarray, x1: np.ndarray, labels: np.ndarray, C: int, estimate: str) -> Line2D:
    """Plot the boundaries of the class regions and return a legend handle, which states if there is no boundary."""
    style = ESTIMATE_LINES[estimate]
    predicted_classes = np.unique(labels).tolist()
    if len(predicted_classes) == 1:
        return Line2D([], [], linestyle="", label=f"{estimate}: no boundary")
    # One contour separates two classes; with more classes, a contour is drawn around the region of each class.
    for index in predicted_classes[1:] if C == 2 else predicted_classes:
        axes.contour(
            x0,
            x1,
            (labels == index).astype(float),
            levels=[0.5],
            colors=[style["color"]],
            linestyles=style["linestyle"],
            linewidths=style["linewidth"],
        )
    return Line2D([], [], label=f"{estimate} boundary", **style)
