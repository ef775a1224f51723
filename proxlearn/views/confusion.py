"""Confusion matrices of the test part, by both estimates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from proxlearn.views.source import Run
from proxlearn.views.style import figure, save


def draw_confusion(run: Run) -> list[Path]:
    """Rows are the actual classes, columns the predicted ones; shade is the share of the row."""
    assert run.confusion is not None
    classes = run.model["classes"]
    made, axes = figure(6.4, 3.2, columns=2)
    for panel, (estimate, cells) in zip(
        axes, run.confusion.query("part == 'test'").groupby("estimate", sort=False), strict=True
    ):
        _draw_matrix(panel, cells.pivot(index="actual", columns="predicted", values="count"), classes)
        panel.set_title(f"test part, {estimate}")
    made.suptitle(run.title, fontsize=9)
    return save(made, run.path, "confusion")


def _draw_matrix(panel: Axes, counts: pd.DataFrame, classes: list[str]) -> None:
    numbers = counts.to_numpy()
    shares = numbers / np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for actual, row in enumerate(numbers):
        for predicted, count in enumerate(row):
            colour = "white" if shares[actual, predicted] > 0.55 else "#333333"
            panel.text(predicted, actual, str(count), ha="center", va="center", color=colour)
    panel.set_xticks(range(len(classes)), classes)
    panel.set_yticks(range(len(classes)), classes, rotation=90, va="center")
    panel.grid(False)
    panel.set(xlabel="predicted", ylabel="actual")
