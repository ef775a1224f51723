"""Confusion matrices of the test part, by both estimates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import escape_mathtext, figure, save

MOST_NUMBERS = 25
"""Classes up to which every cell has its number; beyond, the shade must do."""


def draw_confusion(run: RunData) -> list[Path]:
    """Rows are the actual classes, columns the predicted ones; shade is the share of the row."""
    assert run.confusion is not None
    classes = [escape_mathtext(name) for name in run.model["classes"]]
    side = max(3.0, 1.2 + 0.27 * min(len(classes), MOST_NUMBERS))
    made, axes = figure(2 * side + 0.4, side + 0.2, columns=2)
    for panel, (estimate, cells) in zip(
        axes, run.confusion.query("part == 'test'").groupby("estimate", sort=False), strict=True
    ):
        _draw_matrix(panel, cells.pivot(index="actual", columns="predicted", values="count"), classes)
        panel.set_title(f"test part, {estimate}")
    made.suptitle(f"{run.title}\n{run.figures_note}".rstrip(), fontsize=9)
    return save(made, run.path, "confusion")


def _draw_matrix(panel: Axes, counts: pd.DataFrame, classes: list[str]) -> None:
    numbers = counts.to_numpy()
    shares = numbers / np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for actual, predicted in np.ndindex(numbers.shape) if len(classes) <= MOST_NUMBERS else ():
        count = numbers[actual, predicted]
        # Among many classes a zero is the rule: pale, so that the mistakes stand out.
        pale = count == 0 and len(classes) > 2
        colour = "white" if shares[actual, predicted] > 0.55 else "#c4c4c4" if pale else "#333333"
        size = 9 if len(classes) <= 5 else 7.5
        panel.text(predicted, actual, str(count), ha="center", va="center", color=colour, fontsize=size)
    upright = len(classes) > 3 and max(map(len, classes)) > 2
    panel.set_xticks(range(len(classes)), classes, rotation=90 if upright else 0)
    sideways = len(classes) <= 3 and max(map(len, classes)) > 2
    panel.set_yticks(range(len(classes)), classes, rotation=90 if sideways else 0, va="center")
    panel.tick_params(length=0)
    panel.grid(False)
    panel.spines[:].set_visible(False)
    panel.set(xlabel="predicted", ylabel="actual")
