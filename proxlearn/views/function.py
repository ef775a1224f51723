"""The learnt function of one-dimensional data, from the newest cloud and model.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from proxlearn.core.neurons import NEURONS
from proxlearn.core.problem import Samples
from proxlearn.core.scores import estimates
from proxlearn.run.checkpoint import newest_valid
from proxlearn.views.source import Run
from proxlearn.views.style import ESTIMATE_COLOURS, GREY, figure, save


def draw_function(run: Run) -> list[Path]:
    """f by both estimates over the data's range, with the data beside it."""
    found = newest_valid(run.path / "checkpoints")
    if run.points is None or found is None:
        return []
    cloud = found.cloud.to("cpu", torch.float64)
    x = np.linspace(run.points["x0"].min(), run.points["x0"].max(), 400)
    grid = Samples(torch.from_numpy(x[:, None]), torch.zeros(len(x), dtype=torch.float64))
    made, (axes,) = figure(5.0, 3.3)
    axes.plot(run.points["x0"], run.points["target"], ".", color=GREY, markersize=3, label="data")
    for estimate, f in estimates(NEURONS[run.model["neuron"]], cloud, grid).items():
        axes.plot(x, f.numpy(), color=ESTIMATE_COLOURS[estimate], label=f"{estimate}, k = {cloud.step}")
    axes.set(xlabel=run.model["columns"][0], ylabel="f", title=run.title)
    axes.legend()
    return save(made, run.path, "function")
