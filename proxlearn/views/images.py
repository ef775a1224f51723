"""Weight images: what the heaviest particles look for in each class, where a row of features is an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import TwoSlopeNorm

from proxlearn.views import model
from proxlearn.views.source import Run
from proxlearn.views.style import GREY, grid, save

HEAVIEST = 3


def draw_images(run: Run) -> list[Path]:
    """A row for the cloud's weighted mean, then one for each of its heaviest particles; a column for each class."""
    learnt = model.load(run)
    if learnt is None:
        return []
    height, width = run.model["image"]
    classes, cloud = run.model["classes"], learnt.cloud
    weights = torch.softmax(cloud.log_rho, dim=0)
    heaviest = torch.sort(weights, descending=True, stable=True).indices[:HEAVIEST].tolist()
    shares = [f"particle {i}\n{100 * float(weights[i]):.3g} % of mass" for i in heaviest]
    # The block of weights is theta's last; an intercept, where there is one, comes first.
    w = cloud.theta[:, -len(classes) * height * width :]
    w = torch.cat(((weights @ w)[None], w[heaviest]))
    images = w.view(len(w), len(classes), height, width).numpy()
    # Softmax does not see what all classes share: only the difference from their mean means something.
    images = images - images.mean(axis=1, keepdims=True)
    made, axes = grid(len(images), len(classes), cell=0.62, left=1.1, right=0.8, top=0.75)
    for row, label in enumerate(["mean of\nthe cloud", *shares]):
        largest = float(np.abs(images[row]).max()) or 1.0
        for column, name in enumerate(classes):
            panel = axes[row][column]
            shown = panel.imshow(images[row, column], cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -largest, largest))
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set(visible=True, linewidth=0.5, color=GREY)
            panel.grid(False)
            if row == 0:
                panel.set_title(name)
        axes[row][0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=7.5)
        bar = made.colorbar(shown, ax=list(axes[row]), fraction=0.012, pad=0.01, ticks=[-largest, 0, largest])
        bar.ax.set_yticklabels([f"{-largest:.2g}", "0", f"{largest:.2g}"], fontsize=6.5)
    made.suptitle(f"{run.title}, k={cloud.step}: weights by class, less their mean over the classes", fontsize=9)
    return save(made, run.path, "images")
