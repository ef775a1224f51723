"""Decision regions of two-dimensional data: where each class is predicted, by both estimates, with the data on top."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D

from proxlearn.predict.folder import find
from proxlearn.views.source import Run
from proxlearn.views.style import ESTIMATE_LINES, class_colours, figure, save

GRID = 300
MARGIN = 0.05


def draw_regions(run: Run) -> list[Path]:
    """Shade: the weighted estimate's class. Lines: both estimates' boundaries. Points: the test part, by its labels."""
    learnt = find(run.path)
    if run.points is None or learnt is None:
        return []
    classes = run.model["classes"]
    x0, x1 = (_range(run.points[name].to_numpy()) for name in ("x0", "x1"))
    grid = np.stack([each.ravel() for each in np.meshgrid(x0, x1)], axis=1)
    predicted = {name: each.reshape(GRID, GRID) for name, each in learnt.labels(grid).items()}
    colours = class_colours(len(classes))
    made, (axes,) = figure(5.6, 4.0)
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
    shown = run.points.query("part == 'test'")
    size = 5.0 if len(shown) < 300 else 3.0
    handles = []
    for index, (name, colour) in enumerate(zip(classes, colours, strict=True)):
        own = shown[shown["target"] == index]
        axes.plot(own["x0"], own["x1"], "o", color=colour, markersize=size, alpha=0.75, markeredgewidth=0)
        handles.append(Line2D([], [], marker="o", linestyle="", markersize=4, color=colour, label=f"class {name}"))
    handles += [_boundary(axes, x0, x1, each, len(classes), estimate) for estimate, each in predicted.items()]
    columns = run.model["columns"]
    axes.set(xlabel=columns[0], ylabel=columns[1])
    axes.grid(False)
    made.suptitle(f"{run.title}, k={learnt.cloud.step}: test part and regions", fontsize=9)
    # Only this layout makes room for a legend outside; the others' simpler one is found in half the time.
    made.set_layout_engine("constrained")
    made.legend(handles=handles, loc="outside right center")
    return save(made, run.path, "regions")


def _range(values: np.ndarray) -> np.ndarray:
    margin = MARGIN * (values.max() - values.min())
    return np.linspace(values.min() - margin, values.max() + margin, GRID)


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
