"""Draw the frames of a film: the cloud, the risk and the learned function at each selected step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from proxlearn.predict.model import load_model
from proxlearn.run import checkpoint, checkpoint_file
from proxlearn.run.run_folder import RunFolder
from proxlearn.views.film.cloud_history import CloudHistory, read_cloud_history
from proxlearn.views.run import run_plots
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.run.run_views import has_learned_function, has_regions
from proxlearn.views.style import ESTIMATE_COLOURS, GREY, WEIGHTED, house_style

INCHES = (9.6, 5.4)
ALL_FRAMES = 10**6
"""A number that exceeds the number of checkpoints of any run, so that all checkpoints are read and ``select_frames``
chooses among them.
"""
TRAIL = 8
"""Number of previous frames that the trail of a particle spans."""
AREA = 16.0
"""Area of a particle with the mean weight, in square points; areas are proportional to weights, within AREA_LIMITS."""
AREA_LIMITS = (1.5, 260.0)
LOG_UNIT = math.log(4)
"""Unit of the colour scale, which ranges from a quarter of the mean weight to 16 times the mean weight."""
PERCENTILES = (0.5, 99.5)
"""Percentiles of the positions that determine the axis limits, so that a single outlier does not shrink the plot."""
GRID = 140
"""Number of grid points per side for the decision regions."""
COLOURS = LinearSegmentedColormap.from_list("weights", ["#bcd7e4", WEIGHTED, "#b0388a", "#f5a021"])
LOG_WEIGHT_RANGE = Normalize(-LOG_UNIT, 2 * LOG_UNIT)
"""Colour scale of the logarithm of the relative weight; the mean weight has the blue of the weighted estimate."""
LEGEND = {"1/4 of the mean weight": 0.25, "mean weight, 1/N": 1.0, "4 times the mean weight": 4.0}
"""Weights shown in the legend, relative to the mean weight, by label."""


class Film:
    """A film of a run; all frames are drawn into the same figure, one after another."""

    def __init__(self, folder: Path, frames: int, particles: int) -> None:
        self._run, self._model = read_run_data(folder), load_model(folder)
        stored = read_cloud_history(folder, particles=particles, frames=ALL_FRAMES)
        self._frames = select_frames(stored, frames)
        self._stored_count = len(stored.steps)
        self._positions = self._frames.projected
        self._checkpoints = RunFolder(folder).checkpoints

    def __len__(self) -> int:
        return len(self._frames.steps)

    @property
    def why_fewer(self) -> str:
        """An explanation of why there are fewer frames than requested."""
        if len(self) == self._stored_count:
            return (
                "the run has no more checkpoints; train with a smaller checkpoint_every and a larger keep_checkpoints"
            )
        return f"the other stored checkpoints ({self._stored_count - len(self)}) are not at log-spaced steps"

    def images(self, width: int) -> Iterator[Image.Image]:
        """Yield RGB images, ``width`` pixels wide (16:9), from the first stored step to the newest."""
        with house_style():
            fig = Figure(figsize=INCHES, dpi=width / INCHES[0])
            canvas: Any = FigureCanvasAgg(fig)
            cloud, learned, risk = self._create_axes(fig)
            self._plot_risk(risk)
            for index in range(len(self)):
                self._plot_cloud(cloud, index)
                if learned is not None:
                    self._plot_learned(learned, int(self._frames.steps[index]))
                step_artists = self._mark_step(fig, risk, index)
                canvas.draw()
                yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
                for artist in step_artists:
                    artist.remove()

    def _create_axes(self, fig: Figure) -> tuple[Axes, Axes | None, Axes]:
        """Create the axes of the cloud, of the learned function (None if it cannot be drawn), and of the risk."""
        drawable = self._run.points is not None and (has_learned_function(self._run) or has_regions(self._run))
        grid = fig.add_gridspec(
            2, 2, width_ratios=(1.25, 1), left=0.08, right=0.985, bottom=0.1, top=0.87, wspace=0.2, hspace=0.42
        )
        cloud = fig.add_subplot(grid[:, 0])
        if not drawable:
            return cloud, None, fig.add_subplot(grid[:, 1])
        return cloud, fig.add_subplot(grid[0, 1]), fig.add_subplot(grid[1, 1])

    def _plot_cloud(self, axes: Axes, index: int) -> None:
        axes.clear()
        trail = self._positions[max(0, index - TRAIL) : index + 1]
        for age, (before, after) in enumerate(zip(trail[-2::-1], trail[:0:-1], strict=True)):
            alpha = 0.28 * (1 - age / TRAIL)
            axes.add_collection(
                LineCollection(list(np.stack((before, after), axis=1)), colors=GREY, alpha=alpha, lw=0.7)
            )
        N = len(self._model.cloud.theta)
        relative = np.exp(self._frames.log_rho[index]) * N
        order = np.argsort(relative)
        axes.scatter(
            trail[-1][order, 0],
            trail[-1][order, 1],
            s=np.clip(AREA * relative, *AREA_LIMITS)[order],
            c=np.log(np.maximum(relative, 1e-300))[order],
            cmap=COLOURS,
            norm=LOG_WEIGHT_RANGE,
            alpha=0.85,
            edgecolors="white",
            linewidths=0.3,
            zorder=3,
        )
        axes.set(xlim=self._limits(0, lower_margins=1), ylim=self._limits(1, lower_margins=2))
        names = [f"principal axis {number} ({share:.0%} of the variance)" for number, share in self._variance_shares()]
        axes.set(xlabel=names[0], ylabel=names[1])
        axes.set_title(f"{len(relative)} of {N} particles, size and colour by weight", loc="left")
        axes.legend(handles=_legend_handles(), ncols=3, loc="lower center", fontsize=7, handletextpad=0.1)

    def _limits(self, axis: int, lower_margins: int) -> tuple[float, float]:
        """Return the limits of an axis, which are the same in every frame.

        The lower limit leaves ``lower_margins`` margins of space for the legend.
        """
        ends = np.percentile(self._positions[..., axis], PERCENTILES, axis=1)
        low, high = float(ends[0].min()), float(ends[1].max())
        margin = 0.08 * (high - low) or 1.0
        return low - lower_margins * margin, high + margin

    def _variance_shares(self) -> Iterator[tuple[int, float]]:
        """Yield the number of each principal axis and its share of the particles' variance."""
        theta = self._frames.theta.reshape(-1, self._frames.theta.shape[2])
        total = float(theta.var(axis=0).sum()) or 1.0
        for axis in range(2):
            yield axis + 1, float(self._positions[..., axis].var()) / total

    def _plot_learned(self, axes: Axes, step: int) -> None:
        """Plot the learned function or the decision regions of the whole cloud at ``step``."""
        assert self._run.points is not None
        axes.clear()
        cloud = checkpoint.load(checkpoint_file.checkpoint_path(self._checkpoints, step)).cloud.to("cpu", torch.float64)
        model = replace(self._model, cloud=cloud)
        if has_regions(self._run):
            run_plots.plot_regions(axes, self._run, self._run.points, model, GRID)
            axes.set_title("test part and decision regions", loc="left")
            return
        run_plots.plot_function(axes, self._run, self._run.points, model)
        # The limits are the range of the data plus a third on each side, because f is unbounded in the first frames.
        target = axes.lines[0].get_ydata()
        low, high = float(np.min(target)), float(np.max(target))
        axes.set_ylim(low - (high - low) / 3, high + (high - low) / 3)
        axes.set_title("learned function", loc="left")

    def _plot_risk(self, axes: Axes) -> None:
        run_plots.plot_risk(axes, self._run)
        axes.set_title("risk", loc="left")
        axes.legend(ncols=2, loc="lower left", fontsize=7)

    def _mark_step(self, fig: Figure, risk: Axes, index: int) -> list[Artist]:
        """Draw the title, the step of a frame and the marks of this step on the risk curves; return the new artists."""
        step = int(self._frames.steps[index])
        logged = self._run.metrics[self._run.metrics["step"] > 0]
        artists: list[Artist] = [
            fig.text(0.08, 0.94, self._run.title, fontsize=11, fontweight="bold", va="center"),
            fig.text(0.985, 0.94, f"k = {step:,}", fontsize=14, fontweight="bold", va="center", ha="right"),
        ]
        if len(logged):
            x = max(step, int(logged["step"].iloc[0]))
            artists.append(risk.axvline(x, color=GREY, linewidth=0.8, linestyle=":"))
            for estimate, colour in ESTIMATE_COLOURS.items():
                y = np.interp(x, logged["step"], logged[f"test_risk_{estimate}"])
                artists += risk.plot(x, y, "o", color=colour, markersize=7, markeredgecolor="white", zorder=4)
        return artists


def select_frames(stored: CloudHistory, most: int) -> CloudHistory:
    """Return at most ``most`` frames, evenly spaced in the logarithm of the step, including the first and the last."""
    if len(stored.steps) <= most:
        return stored
    log_steps = np.log1p(stored.steps.astype(float))
    even = np.linspace(log_steps[0], log_steps[-1], most)
    indices = np.unique(np.abs(log_steps[:, None] - even).argmin(axis=0))
    return replace(stored, steps=stored.steps[indices], theta=stored.theta[indices], log_rho=stored.log_rho[indices])


def _legend_handles() -> list[Line2D]:
    """Return the legend entries that explain the sizes and colours of the particles."""
    return [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            label=label,
            markersize=math.sqrt(AREA * relative),
            color=COLOURS(LOG_WEIGHT_RANGE(math.log(relative))),
            markeredgecolor="white",
            markeredgewidth=0.3,
        )
        for label, relative in LEGEND.items()
    ]
