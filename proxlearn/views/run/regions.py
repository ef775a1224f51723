"""Decision regions of two-dimensional data: where each class is predicted, by both estimates, with the data on top."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D

from proxlearn.predict.folder import find
from proxlearn.predict.model import Model
from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import ESTIMATE_LINES, class_colours, escape_mathtext, figure, save

GRID = 300
MARGIN = 0.05


def draw_regions(run: RunData) -> list[Path]:
    """The newest cloud's regions, with their title and their legend."""
    learnt = find(run.path)
    if run.points is None or learnt is None:
        return []
    made, (axes,) = figure(5.6, 4.0)
    handles = plot_regions(axes, run, run.points, learnt)
    made.suptitle(f"{run.title}, k={learnt.cloud.step}: test part and regions", fontsize=9)
    # Only this layout makes room for a legend outside; the others' simpler one is found in half the time.
    made.set_layout_engine("constrained")
    made.legend(handles=handles, loc="outside right center")
    return save(made, run.path, "regions")


def plot_regions(axes: Axes, run: RunData, points: pd.DataFrame, learnt: Model, size: int = GRID) -> list[Line2D]:
    """Shade: the weighted estimate's class. Lines: both estimates' boundaries. Points: the test part, by its labels."""
    classes = run.model["classes"]
    x0, x1 = (axis_range(points[name].to_numpy(), size) for name in ("x0", "x1"))
    grid = np.stack([each.ravel() for each in np.meshgrid(x0, x1)], axis=1)
    predicted = {name: each.reshape(size, size) for name, each in learnt.labels(grid).items()}
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
    shown = points.query("part == 'test'")
    dot = 5.0 if len(shown) < 300 else 3.0
    handles = []
    for index, (name, colour) in enumerate(zip(classes, colours, strict=True)):
        own = shown[shown["target"] == index]
        axes.plot(own["x0"], own["x1"], "o", color=colour, markersize=dot, alpha=0.75, markeredgewidth=0)
        handles.append(
            Line2D([], [], marker="o", linestyle="", markersize=4, color=colour, label=escape_mathtext(f"class {name}"))
        )
    handles += [_boundary(axes, x0, x1, each, len(classes), estimate) for estimate, each in predicted.items()]
    x_name, y_name = map(escape_mathtext, run.model["columns"])
    axes.set(xlabel=x_name, ylabel=y_name)
    axes.grid(False)
    return handles


def axis_range(values: np.ndarray, count: int) -> np.ndarray:
    """``count`` points over the data's range and a little beyond."""
    margin = MARGIN * (values.max() - values.min())
    return np.linspace(values.min() - margin, values.max() + margin, count)


def _boundary(axes: Axes, x0: np.ndarray, x1: np.ndarray, predicted: np.ndarray, C: int, estimate: str) -> Line2D:
    """The edge of every class's region; the legend says so where one class fills the picture."""
    style = ESTIMATE_LINES[estimate]
    present = np.unique(predicted).tolist()
    if len(present) == 1:
        return Line2D([], [], linestyle="", label=f"{estimate}: no boundary")
    # Between two classes one contour is enough; with more, each class draws its own edge.
    for index in present[1:] if C == 2 else present:
        axes.contour(
            x0,
            x1,
            (predicted == index).astype(float),
            levels=[0.5],
            colors=[style["color"]],
            linestyles=style["linestyle"],
            linewidths=style["linewidth"],
        )
    return Line2D([], [], label=f"{estimate} boundary", **style)
