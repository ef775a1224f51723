"""Draw the confusion matrices of the test part for both estimates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import escape_mathtext, figure, hide_frame, save

MOST_NUMBERED = 25
"""Maximum number of classes for which cells show their counts; with more classes, only the shade is shown."""


def draw_confusion(run: RunData) -> list[Path]:
    """Draw the confusion matrices, with actual classes as rows; the shade of a cell is its share of the row."""
    assert run.confusion is not None
    classes = [escape_mathtext(name) for name in run.model["classes"]]
    side = max(3.0, 1.2 + 0.27 * min(len(classes), MOST_NUMBERED))
    fig, panels = figure(2 * side + 0.4, side + 0.2, columns=2)
    for axes, (estimate, cells) in zip(
        panels, run.confusion.query("part == 'test'").groupby("estimate", sort=False), strict=True
    ):
        _draw_matrix(axes, cells.pivot(index="actual", columns="predicted", values="count"), classes)
        axes.set_title(f"test part, {estimate}")
    fig.suptitle(f"{run.title}\n{run.results_note}".rstrip(), fontsize=9)
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
