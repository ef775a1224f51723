"""Draw the weights of the heaviest particles as images, one per class, for data whose rows are images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from proxlearn.predict.model_loader import find_model
from proxlearn.views.run.run_data import RunData
from proxlearn.views.style import hide_frame, save, stacked_axes

HEAVIEST = 3
"""Number of particles that are drawn."""
IMAGE_INCHES = 0.68


def draw_images(run: RunData) -> list[Path]:
    """Draw a row of images for the weighted mean and each of the heaviest particles, with one column per class."""
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
