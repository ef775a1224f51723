"""Plot the learned function of one feature, computed from the newest cloud."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from proxlearn.predict.model import Model
from proxlearn.predict.model_loader import find_model
from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import (
    ESTIMATE_LINES,
    GREY,
    SINGLE_PLOT,
    clip_for_drawing,
    escape_mathtext,
    figure,
    save,
)

GRID = 400
"""Number of points at which the function is evaluated."""


def draw_function(run: RunData) -> list[Path]:
    """Draw function.png and function.pdf: the learned function of the newest cloud."""
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
