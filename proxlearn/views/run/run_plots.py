"""Plots of a run: curves over the recursions, confusion matrices, learned function, regions and particle images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D
from torch import Tensor

from proxlearn.core.neurons.activations import ACTIVATIONS, Activation
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.predict.model import Model, find_model
from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import (
    ESTIMATE_LINES,
    GREY,
    SINGLE_PLOT,
    THIRD,
    WEIGHTED,
    class_colours,
    clip_for_drawing,
    escape_mathtext,
    figure,
    hide_frame,
    plain_ticks,
    save,
    stacked_axes,
    ticks_beyond_curves,
)

SMALLEST_SHARE = 1e-20
"""Lower limit of the kernel shares that are drawn; smaller shares are drawn at this value to limit the axis range."""


def draw_risk(run: RunData) -> list[Path]:
    """Draw risk.png and risk.pdf: the risk over the recursions k."""
    fig, (axes,) = figure(*SINGLE_PLOT)
    plot_risk(axes, run)
    axes.set_title(run.title)
    axes.legend()
    return save(fig, run.path, "risk")


def plot_risk(axes: Axes, run: RunData) -> None:
    """Plot the risk over the recursions k, for both estimates and both parts; if possible, the axes are logarithmic."""
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
        ticks_beyond_curves(axes.yaxis)
    axes.set(xlabel="recursion k", ylabel=escape_mathtext(run.risk_label))


def draw_health(run: RunData) -> list[Path]:
    """Draw health.png and health.pdf: the effective sample size and the largest off-diagonal share of the kernel.

    Return the paths, or an empty list if the run has logged fewer than two steps.
    """
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


MOST_NUMBERED = 25
"""Maximum number of classes for which cells show their counts; with more classes, only the shade is shown."""


def draw_confusion(run: RunData) -> list[Path]:
    """Draw the confusion matrices, with actual classes as rows; the shade of a cell shows its share of the row."""
    assert run.confusion is not None
    classes = [escape_mathtext(name) for name in run.model["classes"]]
    side = max(3.0, 1.2 + 0.27 * min(len(classes), MOST_NUMBERED))
    fig, panels = figure(2 * side + 0.4, side + 0.2, columns=2)
    for axes, (estimate, cells) in zip(
        panels, run.confusion.query("part == 'test'").groupby("estimate", sort=False), strict=True
    ):
        _draw_matrix(axes, cells.pivot(index="actual", columns="predicted", values="count"), classes)
        axes.set_title(f"test part, {estimate}")
    about = "shade: share of the rows of the actual class"
    fig.suptitle("\n".join(filter(None, (run.title, about, run.results_note))), fontsize=9)
    return save(fig, run.path, "confusion")


def _draw_matrix(axes: Axes, table: pd.DataFrame, classes: list[str]) -> None:
    counts = table.to_numpy()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for actual, predicted in np.ndindex(counts.shape) if len(classes) <= MOST_NUMBERED else ():
        count = counts[actual, predicted]
        # With more than two classes, most cells are zero; they are pale, so that the errors stand out.
        pale = count == 0 and len(classes) > 2
        colour = "white" if shares[actual, predicted] > 0.55 else "#c4c4c4" if pale else "#333333"
        size = 9 if len(classes) <= 5 else 7.5
        axes.text(predicted, actual, str(count), ha="center", va="center", color=colour, fontsize=size)
    # Long names are rotated if they would overlap, which happens below many columns and beside few rows.
    long_names = max(map(len, classes)) > 2
    axes.set_xticks(range(len(classes)), classes, rotation=90 if long_names and len(classes) > 3 else 0)
    axes.set_yticks(range(len(classes)), classes, rotation=90 if long_names and len(classes) <= 3 else 0, va="center")
    axes.tick_params(length=0)
    hide_frame(axes)
    axes.set(xlabel="predicted", ylabel="actual")


GRID = 400
"""Number of points at which the learned function is evaluated."""


def draw_function(run: RunData) -> list[Path]:
    """Draw function.png and function.pdf: the learned function of the newest cloud.

    Return the paths, or an empty list if the run has no data points to draw or no valid checkpoint.
    """
    model = find_model(run.path)
    if run.points is None or model is None:
        return []
    fig, (axes,) = figure(*SINGLE_PLOT)
    plot_function(axes, run, run.points, model)
    axes.set_title(run.title)
    axes.legend()
    return save(fig, run.path, "function")


def plot_function(axes: Axes, run: RunData, points: pd.DataFrame, model: Model) -> None:
    """Plot both estimates of f over the range of the data, together with the data."""
    x = np.linspace(points["x0"].min(), points["x0"].max(), GRID)
    # f is fitted to the target itself, or to -1 and +1 for two classes.
    target = points["target"] if run.model["task"] == "regression" else 2 * points["target"] - 1
    axes.plot(points["x0"], target, ".", color=GREY, markersize=3, label="data")
    for estimate, f in model.values(x[:, None]).items():
        axes.plot(x, clip_for_drawing(f), label=f"{estimate}, k = {model.cloud.step}", **ESTIMATE_LINES[estimate])
    axes.set(xlabel=escape_mathtext(run.model["columns"][0]), ylabel="f")


HEAVIEST = 3
"""Number of the heaviest particles whose weights are drawn as images."""
IMAGE_INCHES = 0.68


def draw_images(run: RunData) -> list[Path]:
    """Draw images.png and images.pdf: the weights of each class as images.

    The first row shows the weighted mean of the cloud, and each further row shows one of the heaviest particles. Return
    the paths, or an empty list if the run has no valid checkpoint.
    """
    model = find_model(run.path)
    if model is None:
        return []
    height, width = run.model["image"]
    classes, cloud = run.model["classes"], model.cloud
    weights = cloud.shares
    heaviest = torch.sort(weights, descending=True, stable=True).indices[:HEAVIEST].tolist()
    labels = ["mean of\nthe cloud", *(f"particle {i}\n{100 * float(weights[i]):.3g} % of mass" for i in heaviest)]
    # The weights are the last block of theta; an intercept, if there is one, comes first.
    w = cloud.theta[:, -len(classes) * height * width :]
    w = torch.cat(((weights @ w)[None], w[heaviest]))
    images = w.view(len(w), len(classes), height, width).numpy()
    # Softmax is invariant to a term that all classes share, so only the difference from the mean over classes matters.
    images = images - images.mean(axis=1, keepdims=True)
    fig, panels = stacked_axes(IMAGE_INCHES * len(classes) + 1.7, IMAGE_INCHES * len(images) + 0.9, len(images))
    gap = max(1, width // 8)
    for axes, row, label in zip(panels, images, labels, strict=True):
        largest = float(np.abs(row).max()) or 1.0
        image = axes.imshow(_side_by_side(row, gap), cmap="RdBu_r", vmin=-largest, vmax=largest)
        axes.set(xticks=[], yticks=[])
        hide_frame(axes)
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        bar = fig.colorbar(image, ax=axes, fraction=0.012, pad=0.01, ticks=[-largest, 0, largest])
        bar.ax.set_yticklabels([f"{-largest:.2g}", "0", f"{largest:.2g}"], fontsize=6.5)
        bar.outline.set_linewidth(0.5)
    centres = [(width + gap) * column + (width - 1) / 2 for column in range(len(classes))]
    panels[0].xaxis.set_ticks_position("top")
    panels[0].set_xticks(centres, classes)
    panels[0].tick_params(length=0)
    fig.suptitle(f"{run.title}, k={cloud.step}: weights by class, minus their mean over the classes", fontsize=9)
    return save(fig, run.path, "images")


def _side_by_side(images: np.ndarray, gap: int) -> np.ndarray:
    """Return the images (C x height x width) side by side as one image, separated by ``gap`` empty columns."""
    padded = np.pad(images, ((0, 0), (0, 0), (0, gap)), constant_values=np.nan)
    joined: np.ndarray = np.concatenate(list(padded), axis=1)[:, :-gap]
    return joined


REGION_GRID = 300
"""Number of grid points per side at which classes are predicted."""
MARGIN = 0.05
"""Margin on each side, as a share of the range of the data."""


def draw_regions(run: RunData) -> list[Path]:
    """Draw regions.png and regions.pdf: the decision regions of the newest cloud.

    Return the paths, or an empty list if the run has no data points to draw or no valid checkpoint.
    """
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


def fast_tanh(z: Tensor) -> Tensor:
    """Return tanh z up to rounding; for float64, torch computes sigmoid six times as fast as tanh."""
    return torch.sigmoid(2 * z).mul_(2).sub_(1)


FAST_TANH = Activation("tanh as a sigmoid", fast_tanh)


def _with_fast_tanh(model: Model) -> Model:
    """Return the model with ``fast_tanh`` in place of tanh, which changes its outputs by rounding only.

    A model with other neurons is returned unchanged.
    """
    neuron = model.neuron
    if not isinstance(neuron, Perceptron) or neuron.activation != ACTIVATIONS["tanh"]:
        return model
    return replace(model, neuron=Perceptron(FAST_TANH, neuron.num_outputs))


def plot_regions(axes: Axes, run: RunData, points: pd.DataFrame, model: Model, size: int = REGION_GRID) -> list[Line2D]:
    """Plot the decision regions, their boundaries and the test points; return the handles for a legend.

    The shade shows the class that the weighted estimate predicts, the lines are the boundaries of both estimates, and
    the points are the test part, coloured by class.
    """
    classes = run.model["classes"]
    x0, x1 = (axis_range(points[name].to_numpy(), size) for name in ("x0", "x1"))
    grid = np.stack([coordinate.ravel() for coordinate in np.meshgrid(x0, x1)], axis=1)
    predicted = {
        estimate: labels.reshape(size, size) for estimate, labels in _with_fast_tanh(model).labels(grid).items()
    }
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
    """Plot the boundaries between the classes; return a legend handle, whose label states if there is no boundary."""
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
