"""The cloud of a run for the page: particles by frame, and what they have learnt, quantised and in base64."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from proxlearn.predict.folder import find
from proxlearn.predict.model import Model
from proxlearn.views.film.cloud_history import FRAMES, PARTICLES, CloudHistory, clouds, read_cloud_history
from proxlearn.views.report.payload import short
from proxlearn.views.run.regions import axis_range
from proxlearn.views.run.run_data import RunData

MOST_CLOUDS = 12
"""Runs of a page whose clouds are shown: each takes some hundred kilobytes."""
MOST_VALUES = 1_000_000
"""Of all clouds of a page together, two bytes each."""
MOST_COORDINATES = 34
LINE = 200
"""Points of a learnt function of one feature."""


@dataclass(frozen=True)
class Size:
    """How much of a cloud is shown."""

    values: int
    frames: int
    grid: int
    """Points a side of a function of two features."""


def size_for(runs: int) -> Size:
    """A page of one run shows all that there is room for; one of many shows less of each."""
    return Size(MOST_VALUES // runs, FRAMES if runs <= 2 else FRAMES // 2, 48 if runs <= 2 else 32)


def cloud_data(run: RunData, size: Size) -> dict[str, Any] | None:
    """Frames of a run; None where it has stored no cloud yet."""
    model = find(run.path)
    if model is None:
        return None
    frames = read_cloud_history(run.path, PARTICLES, size.frames)
    projected, theta = frames.projected, frames.theta
    room = size.values // frames.log_rho.size - 1 - projected.shape[2]
    shown = _coordinates(frames, min(room, MOST_COORDINATES))
    columns = [*(projected[..., i] for i in range(2)), *(theta[..., i] for i in shown)]
    return {
        "steps": frames.steps.tolist(),
        "particles": frames.particles.tolist(),
        "names": ["principal axis 1", "principal axis 2", *(frames.columns[i] for i in shown)],
        "omitted": len(frames.columns) - len(shown),
        "coordinates": [quantised(each) for each in columns],
        "weights": quantised(frames.log_rho),
        "learnt": learnt(run, model, frames.steps, size),
    }


def learnt(run: RunData, model: Model, steps: np.ndarray, size: Size) -> dict[str, Any] | None:
    """What the whole cloud says over the range of one or two features, frame by frame, by both estimates."""
    features = len(model.columns)
    if run.points is None or (features == 1 and len(model.classes) > 2):
        return None
    finite = run.points.replace([np.inf, -np.inf], np.nan).dropna()
    if finite.empty:
        return None
    count = LINE if features == 1 else size.grid
    ranges = [axis_range(finite[f"x{i}"].to_numpy(float), count) for i in range(features)]
    X = np.stack([each.ravel() for each in np.meshgrid(*ranges)], axis=1)
    kept = set(steps.tolist())
    answers = [
        _answers(replace(model, cloud=cloud.to("cpu", torch.float64)), X)
        for cloud in clouds(run.path, size.frames)
        if cloud.step in kept
    ]
    points = finite[finite["part"] == "test"]
    target = points["target"].to_numpy(float)
    line = features == 1
    return {
        "kind": "line" if line else "labels" if len(model.classes) > 2 else "shares" if model.classes else "values",
        "features": list(model.columns),
        "classes": list(model.classes),
        "ranges": [[float(each[0]), float(each[-1]), len(each)] for each in ranges],
        "points": [short(points[f"x{i}"].to_numpy(float)) for i in range(features)],
        # f regresses -1 and +1 where there are two classes.
        "target": short(2 * target - 1 if line and len(model.classes) == 2 else target),
        "estimates": {name: quantised(np.stack([each[name] for each in answers])) for name in answers[0]},
    }


def quantised(values: np.ndarray) -> dict[str, Any]:
    """16 bits a number, between the least and the largest of them; little-endian, base64."""
    low, high = float(values.min()), float(values.max())
    # The difference is divided first: 65535 over a range among the smallest numbers would be infinite.
    scaled = (values.astype(np.float64) - low) / (high - low) * 65535 if high > low else np.zeros(values.shape)
    return {"low": low, "high": high, "data": base64.b64encode(scaled.round().astype("<u2").tobytes()).decode()}


def _answers(model: Model, X: np.ndarray) -> dict[str, np.ndarray]:
    """One number a point: f, the second class's share, or the index of the predicted class."""
    if X.shape[1] == 2 and len(model.classes) > 2:
        return model.labels(X)
    if X.shape[1] == 2 and model.classes:
        return {name: model.task.probabilities(each)[1].numpy() for name, each in model.answers(X).items()}
    return model.values(X)


def _coordinates(frames: CloudHistory, room: int) -> list[int]:
    """Which coordinates can be chosen: all, or those of the shortest names (a, b) and of the largest spread."""
    if len(frames.columns) <= room:
        return list(range(len(frames.columns)))
    spread = frames.theta.reshape(-1, frames.theta.shape[2]).std(axis=0)
    order = sorted(range(len(spread)), key=lambda i: (":" in frames.columns[i], -spread[i]))
    return sorted(order[: max(0, room)])
