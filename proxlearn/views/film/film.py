"""The cloud in motion: one picture for each stored moment, with the risk and what the cloud has learnt beside it."""

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

from proxlearn.predict.folder import load
from proxlearn.run import checkpoint, checkpoint_file
from proxlearn.run.run_folder import RunFolder
from proxlearn.views.film.cloud_history import CloudHistory, read_cloud_history
from proxlearn.views.run import curves, learned_function, regions
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.style import ESTIMATE_COLOURS, GREY, WEIGHTED, house_style

INCHES = (9.6, 5.4)
ALL = 10**6
"""More moments than a run stores: which of them are shown is decided here, evenly on a logarithmic axis."""
TRAIL = 8
"""How many frames back a particle's way is seen."""
AREA = 16.0
"""Of a particle with the mean weight, in square points; others in proportion, within LEAST_MOST."""
LEAST_MOST = (1.5, 260.0)
SPREAD = math.log(4)
"""Colours begin where a weight is a quarter of the mean, and end where it is 16 times the mean."""
EDGES = (0.5, 99.5)
"""Percentiles of the particles' places that the picture holds: a stray one would make all others small."""
GRID = 140
COLOURS = LinearSegmentedColormap.from_list("weights", ["#bcd7e4", WEIGHTED, "#b0388a", "#f5a021"])
COLOURS_OF_LOG = Normalize(-SPREAD, 2 * SPREAD)
"""The mean weight has the blue of the weighted estimate."""


class Film:
    """A run's pictures, drawn one after the other into one figure."""

    def __init__(self, folder: Path, frames: int, particles: int) -> None:
        self._run, self._model = read_run_data(folder), load(folder)
        every = read_cloud_history(folder, particles=particles, frames=ALL)
        self._frames = chosen(every, frames)
        self._stored = len(every.steps)
        self._places = self._frames.projected
        self._checkpoints = RunFolder(folder).checkpoints

    def __len__(self) -> int:
        return len(self._frames.steps)

    @property
    def why_fewer(self) -> str:
        """Why there are fewer pictures than were asked for."""
        if len(self) == self._stored:
            return "the run has stored no more; train with a smaller checkpoint_every and a larger keep_checkpoints"
        return f"of the {self._stored} stored clouds the others are not at log-spaced steps"

    def pictures(self, width: int) -> Iterator[Image.Image]:
        """RGB pictures of ``width`` pixels, 16 to 9, from the first moment to the newest."""
        with house_style():
            made = Figure(figsize=INCHES, dpi=width / INCHES[0])
            canvas: Any = FigureCanvasAgg(made)
            left, learnt, risk = self._panels(made)
            self._begin_risk(risk)
            for index in range(len(self)):
                self._draw_cloud(left, index)
                if learnt is not None:
                    self._draw_learnt(learnt, int(self._frames.steps[index]))
                moving = self._draw_moment(made, risk, index)
                canvas.draw()
                yield Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
                for artist in moving:
                    artist.remove()

    def _panels(self, made: Figure) -> tuple[Axes, Axes | None, Axes]:
        """The cloud on the left; on the right the learnt function, where it can be shown, above the risk."""
        columns, model = self._run.model["columns"], self._run.model
        seen = self._run.points is not None and (
            (len(columns) == 1 and model["task"] != "multiclass") or (len(columns) == 2 and bool(model["classes"]))
        )
        grid = made.add_gridspec(
            2, 2, width_ratios=(1.25, 1), left=0.08, right=0.985, bottom=0.1, top=0.87, wspace=0.2, hspace=0.42
        )
        left = made.add_subplot(grid[:, 0])
        if not seen:
            return left, None, made.add_subplot(grid[:, 1])
        return left, made.add_subplot(grid[0, 1]), made.add_subplot(grid[1, 1])

    def _draw_cloud(self, axes: Axes, index: int) -> None:
        axes.clear()
        way = self._places[max(0, index - TRAIL) : index + 1]
        for age, (before, after) in enumerate(zip(way[-2::-1], way[:0:-1], strict=True)):
            faded = 0.28 * (1 - age / TRAIL)
            axes.add_collection(
                LineCollection(list(np.stack((before, after), axis=1)), colors=GREY, alpha=faded, lw=0.7)
            )
        N = len(self._model.cloud.theta)
        relative = np.exp(self._frames.log_rho[index]) * N
        order = np.argsort(relative)
        axes.scatter(
            way[-1][order, 0],
            way[-1][order, 1],
            s=np.clip(AREA * relative, *LEAST_MOST)[order],
            c=np.log(np.maximum(relative, 1e-300))[order],
            cmap=COLOURS,
            norm=COLOURS_OF_LOG,
            alpha=0.85,
            edgecolors="white",
            linewidths=0.3,
            zorder=3,
        )
        axes.set(xlim=self._limits(0, below=1), ylim=self._limits(1, below=2))
        names = [f"principal axis {place} ({share:.0%} of the variance)" for place, share in self._shares()]
        axes.set(xlabel=names[0], ylabel=names[1])
        axes.set_title(f"{len(relative)} of {N} particles, size and colour by weight", loc="left")
        axes.legend(handles=_key(), ncols=3, loc="lower center", fontsize=7, handletextpad=0.1)

    def _limits(self, place: int, below: int) -> tuple[float, float]:
        """The same in every picture: all but strays, with a margin, and ``below`` as much of it where the key is."""
        ends = np.percentile(self._places[..., place], EDGES, axis=1)
        low, high = float(ends[0].min()), float(ends[1].max())
        margin = 0.08 * (high - low) or 1.0
        return low - below * margin, high + margin

    def _shares(self) -> Iterator[tuple[int, float]]:
        """How much of the particles' variance each axis shows."""
        theta = self._frames.theta.reshape(-1, self._frames.theta.shape[2])
        total = float(theta.var(axis=0).sum()) or 1.0
        for place in range(2):
            yield place + 1, float(self._places[..., place].var()) / total

    def _draw_learnt(self, axes: Axes, step: int) -> None:
        """By the whole cloud of that moment, not only by the particles that are shown."""
        assert self._run.points is not None
        axes.clear()
        cloud = checkpoint.load(checkpoint_file.checkpoint_path(self._checkpoints, step)).cloud.to("cpu", torch.float64)
        learnt = replace(self._model, cloud=cloud)
        if len(self._run.model["columns"]) == 2:
            regions.plot_regions(axes, self._run, self._run.points, learnt, GRID)
            axes.set_title("test part and decision regions", loc="left")
            return
        learned_function.plot_function(axes, self._run, self._run.points, learnt)
        # The data's range and a third of it: at first f may be anywhere.
        target = axes.lines[0].get_ydata()
        low, high = float(np.min(target)), float(np.max(target))
        axes.set_ylim(low - (high - low) / 3, high + (high - low) / 3)
        axes.set_title("the learnt function", loc="left")

    def _begin_risk(self, axes: Axes) -> None:
        curves.plot_risk(axes, self._run)
        axes.set_title("the risk", loc="left")
        axes.legend(ncols=2, loc="lower left", fontsize=7)

    def _draw_moment(self, made: Figure, risk: Axes, index: int) -> list[Artist]:
        """What says which moment it is: the title, and a dot on each curve."""
        step = int(self._frames.steps[index])
        logged = self._run.metrics[self._run.metrics["step"] > 0]
        moving: list[Artist] = [
            made.text(0.08, 0.94, self._run.title, fontsize=11, fontweight="bold", va="center"),
            made.text(0.985, 0.94, f"k = {step:,}", fontsize=14, fontweight="bold", va="center", ha="right"),
        ]
        if len(logged):
            place = max(step, int(logged["step"].iloc[0]))
            moving.append(risk.axvline(place, color=GREY, linewidth=0.8, linestyle=":"))
            for estimate, colour in ESTIMATE_COLOURS.items():
                value = np.interp(place, logged["step"], logged[f"test_risk_{estimate}"])
                moving += risk.plot(place, value, "o", color=colour, markersize=7, markeredgecolor="white", zorder=4)
        return moving


def chosen(every: CloudHistory, most: int) -> CloudHistory:
    """At most ``most`` of the frames, the first and the last among them, evenly on a logarithmic axis of steps."""
    if len(every.steps) <= most:
        return every
    places = np.log1p(every.steps.astype(float))
    wanted = np.linspace(places[0], places[-1], most)
    kept = np.unique(np.abs(places[:, None] - wanted).argmin(axis=0))
    return replace(every, steps=every.steps[kept], theta=every.theta[kept], log_rho=every.log_rho[kept])


def _key() -> list[Line2D]:
    """What sizes and colours mean."""
    known = {"a quarter of the mean weight": 0.25, "the mean weight, 1/N": 1.0, "4 times as much": 4.0}
    return [
        Line2D([], [], marker="o", linestyle="", label=name, **_looks(relative)) for name, relative in known.items()
    ]


def _looks(relative: float) -> dict[str, Any]:
    colour = COLOURS(COLOURS_OF_LOG(math.log(relative)))
    return {
        "markersize": math.sqrt(AREA * relative),
        "color": colour,
        "markeredgecolor": "white",
        "markeredgewidth": 0.3,
    }
