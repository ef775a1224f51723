"""The learnt function of one-dimensional data, from the newest cloud and model.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proxlearn.predict.folder import find
from proxlearn.views.source import Run
from proxlearn.views.style import ESTIMATE_LINES, GREY, figure, save


def draw_function(run: Run) -> list[Path]:
    """f by both estimates over the data's range, with the data beside it."""
    learnt = find(run.path)
    if run.points is None or learnt is None:
        return []
    x = np.linspace(run.points["x0"].min(), run.points["x0"].max(), 400)
    made, (axes,) = figure(5.0, 3.3)
    # What f regresses: the target itself, or -1 and +1 for two classes.
    target = run.points["target"] if run.model["task"] == "regression" else 2 * run.points["target"] - 1
    axes.plot(run.points["x0"], target, ".", color=GREY, markersize=3, label="data")
    for estimate, f in learnt.values(x[:, None]).items():
        axes.plot(x, f, label=f"{estimate}, k = {learnt.cloud.step}", **ESTIMATE_LINES[estimate])
    axes.set(xlabel=run.model["columns"][0], ylabel="f", title=run.title)
    axes.legend()
    return save(made, run.path, "function")
