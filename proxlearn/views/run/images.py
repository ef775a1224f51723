"""Weight images: what the heaviest particles look for in each class, where a row of features is an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from proxlearn.predict.folder import find
from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import save, stacked_axes

HEAVIEST = 3
CELL = 0.68
"""Inches of one image."""


def draw_images(run: RunData) -> list[Path]:
    """A row for the cloud's weighted mean, then one for each of its heaviest particles; a column for each class."""
    learnt = find(run.path)
    if learnt is None:
        return []
    height, width = run.model["image"]
    classes, cloud = run.model["classes"], learnt.cloud
    weights = torch.softmax(cloud.log_rho, dim=0)
    heaviest = torch.sort(weights, descending=True, stable=True).indices[:HEAVIEST].tolist()
    labels = ["mean of\nthe cloud", *(f"particle {i}\n{100 * float(weights[i]):.3g} % of mass" for i in heaviest)]
    # The block of weights is theta's last; an intercept, where there is one, comes first.
    w = cloud.theta[:, -len(classes) * height * width :]
    w = torch.cat(((weights @ w)[None], w[heaviest]))
    images = w.view(len(w), len(classes), height, width).numpy()
    # Softmax does not see what all classes share: only the difference from their mean means something.
    images = images - images.mean(axis=1, keepdims=True)
    made, axes = stacked_axes(CELL * len(classes) + 1.7, CELL * len(images) + 0.9, len(images))
    gap = max(1, width // 8)
    for panel, row, label in zip(axes, images, labels, strict=True):
        largest = float(np.abs(row).max()) or 1.0
        shown = panel.imshow(_side_by_side(row, gap), cmap="RdBu_r", vmin=-largest, vmax=largest)
        panel.set(xticks=[], yticks=[])
        panel.grid(False)
        panel.spines[:].set_visible(False)
        panel.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        bar = made.colorbar(shown, ax=panel, fraction=0.012, pad=0.01, ticks=[-largest, 0, largest])
        bar.ax.set_yticklabels([f"{-largest:.2g}", "0", f"{largest:.2g}"], fontsize=6.5)
        bar.outline.set_linewidth(0.5)
    centres = [(width + gap) * column + (width - 1) / 2 for column in range(len(classes))]
    axes[0].xaxis.set_ticks_position("top")
    axes[0].set_xticks(centres, classes)
    axes[0].tick_params(length=0)
    made.suptitle(f"{run.title}, k={cloud.step}: weights by class, less their mean over the classes", fontsize=9)
    return save(made, run.path, "images")


def _side_by_side(images: np.ndarray, gap: int) -> np.ndarray:
    """C x height x width as one wide image, with empty columns between."""
    apart = np.pad(images, ((0, 0), (0, 0), (0, gap)), constant_values=np.nan)
    joined: np.ndarray = np.concatenate(list(apart), axis=1)[:, :-gap]
    return joined
