"""The learnt function of one-dimensional data, from the newest cloud and model.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from proxlearn.predict.folder import find
from proxlearn.predict.model import Model
from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import ESTIMATE_LINES, GREY, clip_for_drawing, escape_mathtext, figure, save


def draw_function(run: RunData) -> list[Path]:
    """The newest cloud's function, with its title and its legend."""
    learnt = find(run.path)
    if run.points is None or learnt is None:
        return []
    made, (axes,) = figure(5.0, 3.3)
    plot_function(axes, run, run.points, learnt)
    axes.set_title(run.title)
    axes.legend()
    return save(made, run.path, "function")


def plot_function(axes: Axes, run: RunData, points: pd.DataFrame, learnt: Model) -> None:
    """f by both estimates over the data's range, with the data beside it."""
    x = np.linspace(points["x0"].min(), points["x0"].max(), 400)
    # What f regresses: the target itself, or -1 and +1 for two classes.
    target = points["target"] if run.model["task"] == "regression" else 2 * points["target"] - 1
    axes.plot(points["x0"], target, ".", color=GREY, markersize=3, label="data")
    for estimate, f in learnt.values(x[:, None]).items():
        axes.plot(x, clip_for_drawing(f), label=f"{estimate}, k = {learnt.cloud.step}", **ESTIMATE_LINES[estimate])
    axes.set(xlabel=escape_mathtext(run.model["columns"][0]), ylabel="f")
