"""Encode the cloud of a run for the report page: the particles and the learned function of each frame."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from proxlearn.predict.model import Model, find_model
from proxlearn.views.film.cloud_history import FRAMES, PARTICLES, CloudHistory, clouds, read_cloud_history
from proxlearn.views.report.payload import shorten
from proxlearn.views.run.run_data import RunData
from proxlearn.views.run.run_plots import axis_range

MOST_CLOUDS = 12
"""Maximum number of runs whose clouds a page includes; a cloud takes several hundred kilobytes."""
MOST_VALUES = 1_000_000
"""Maximum number of values in all clouds of a page together; a value takes two bytes."""
MOST_COORDINATES = 34
LINE_POINTS = 200
"""Number of points at which a function of one feature is evaluated."""


@dataclass(frozen=True)
class CloudLimits:
    """The limits on the part of a cloud that is included in a page."""

    values: int
    frames: int
    grid: int
    """Number of grid points per side for a function of two features."""


def limits_for(runs: int) -> CloudLimits:
    """Return the limits per cloud for a page with ``runs`` runs; a page with more runs includes less of each cloud."""
    return CloudLimits(MOST_VALUES // runs, FRAMES if runs <= 2 else FRAMES // 2, 48 if runs <= 2 else 32)


def cloud_payload(run: RunData, limits: CloudLimits) -> dict[str, Any] | None:
    """Return the cloud of a run as data for the page, or None if the run has not stored a checkpoint yet."""
    model = find_model(run.path)
    if model is None:
        return None
    history = read_cloud_history(run.path, PARTICLES, limits.frames)
    projected, theta = history.projected, history.theta
    most_coordinates = limits.values // history.log_rho.size - 1 - projected.shape[2]
    coordinates = _select_coordinates(history, min(most_coordinates, MOST_COORDINATES))
    columns = [*(projected[..., i] for i in range(2)), *(theta[..., i] for i in coordinates)]
    return {
        "steps": history.steps.tolist(),
        "particles": history.particles.tolist(),
        "names": ["principal axis 1", "principal axis 2", *(history.columns[i] for i in coordinates)],
        "omitted": len(history.columns) - len(coordinates),
        "coordinates": [quantise(column) for column in columns],
        "weights": quantise(history.log_rho),
        "learnt": learned_payload(run, model, history.steps, limits),
    }


def learned_payload(run: RunData, model: Model, steps: np.ndarray, limits: CloudLimits) -> dict[str, Any] | None:
    """Return the learned function of the whole cloud per frame and estimate, or None if it cannot be drawn."""
    features = len(model.columns)
    if run.points is None or (features == 1 and len(model.classes) > 2):
        return None
    finite = run.points.replace([np.inf, -np.inf], np.nan).dropna()
    if finite.empty:
        return None
    is_line = features == 1
    count = LINE_POINTS if is_line else limits.grid
    ranges = [axis_range(finite[f"x{i}"].to_numpy(float), count) for i in range(features)]
    X = np.stack([coordinate.ravel() for coordinate in np.meshgrid(*ranges)], axis=1)
    kept_steps = set(steps.tolist())
    outputs = [
        _evaluate(replace(model, cloud=cloud.to("cpu", torch.float64)), X)
        for cloud in clouds(run.path, limits.frames)
        if cloud.step in kept_steps
    ]
    points = finite[finite["part"] == "test"]
    target = points["target"].to_numpy(float)
    return {
        "kind": "line" if is_line else "labels" if len(model.classes) > 2 else "shares" if model.classes else "values",
        "features": list(model.columns),
        "classes": list(model.classes),
        "ranges": [[float(values[0]), float(values[-1]), len(values)] for values in ranges],
        "points": [shorten(points[f"x{i}"].to_numpy(float)) for i in range(features)],
        # For two classes, f is fitted to -1 and +1.
        "target": shorten(2 * target - 1 if is_line and len(model.classes) == 2 else target),
        "estimates": {name: quantise(np.stack([frame[name] for frame in outputs])) for name in outputs[0]},
    }


def quantise(values: np.ndarray) -> dict[str, Any]:
    """Encode numbers in base64 as 16-bit integers (little-endian), scaled from the smallest to the largest number."""
    low, high = float(values.min()), float(values.max())
    # The difference is divided first, because 65535 divided by a denormal range would be infinite.
    scaled = (values.astype(np.float64) - low) / (high - low) * 65535 if high > low else np.zeros(values.shape)
    return {"low": low, "high": high, "data": base64.b64encode(scaled.round().astype("<u2").tobytes()).decode()}


def _evaluate(model: Model, X: np.ndarray) -> dict[str, np.ndarray]:
    """Return one number per point and estimate.

    For two features, it is the predicted class if there are more than two classes, and the probability of the second
    class if there are two classes. In all other cases, it is f.
    """
    if X.shape[1] == 2 and len(model.classes) > 2:
        return model.labels(X)
    if X.shape[1] == 2 and model.classes:
        return {name: model.task.probabilities(f)[1].numpy() for name, f in model.mean_outputs(X).items()}
    return model.values(X)


def _select_coordinates(history: CloudHistory, most: int) -> list[int]:
    """Return the indices of at most ``most`` coordinates: scalar parameters first, then those that vary most."""
    if len(history.columns) <= most:
        return list(range(len(history.columns)))
    deviations = history.theta.reshape(-1, history.theta.shape[2]).std(axis=0)
    order = sorted(range(len(deviations)), key=lambda i: (":" in history.columns[i], -deviations[i]))
    return sorted(order[: max(0, most)])
