"""Read the stored checkpoints of a run as frames of its cloud, for the report page and for films."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.predict.model import load_model, newest_checkpoint
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints
from proxlearn.run.resume_point import require_same_run, warn_foreign
from proxlearn.run.run_folder import RunFolder

FRAMES, PARTICLES = 60, 300
HEAVIEST_SHARE = 1 / 3
"""Share of the drawn particles that is reserved for the heaviest particles of the newest cloud, so that growing weights
are visible. The others are taken at even intervals from the remaining particles, whose order has no meaning."""
LARGEST_COORDINATE = 1e15
"""Largest magnitude of a coordinate; larger values, as in a diverged cloud, are clamped, so that their squares fit into
float32."""


@dataclass(frozen=True)
class CloudHistory:
    """Selected particles of a run at selected stored steps, in ascending order of the steps.

    F is the number of frames, P the number of particles and p the number of coordinates.
    """

    steps: np.ndarray
    """Step of each frame; length F."""
    theta: np.ndarray
    """Coordinates of the particles, F x P x p, float32."""
    log_rho: np.ndarray
    """Logarithms of the particles' shares of the total mass of the cloud, F x P."""
    columns: list[str]
    """Names of the p coordinates."""
    axes: np.ndarray
    """Two orthonormal principal axes of all frames together, 2 x p. If the points span fewer than two dimensions, the
    remaining axes are zero."""
    mean: np.ndarray
    """Mean of the points of all frames; length p."""
    particles: np.ndarray
    """Indices of the selected particles in the cloud, in ascending order; length P."""

    @property
    def projected(self) -> np.ndarray:
        """Coordinates of the particles on the principal axes, F x P x 2."""
        positions: np.ndarray = (self.theta - self.mean) @ self.axes.T
        return positions


def clouds(folder: Path, frames: int = FRAMES) -> Iterator[PointCloud]:
    """Yield at most ``frames`` of the stored clouds, from the first to the newest valid one.

    The clouds are spread evenly over the stored checkpoints. Damaged checkpoints and checkpoints of other runs are
    skipped with a notice.
    """
    store = RunFolder(folder).checkpoints
    newest = newest_checkpoint(RunFolder(folder))
    if newest is None:
        return
    # The stored steps are log-spaced, so evenly chosen checkpoints are evenly spaced on a logarithmic axis.
    older = [path for step, path in reversed(list_checkpoints(store)) if step < newest.cloud.step]
    for index in np.unique(np.linspace(0, len(older), min(frames, len(older) + 1)).round().astype(int)):
        try:
            stored = checkpoint.load(older[index]) if index < len(older) else newest
            require_same_run(stored.run, newest.run)
            yield stored.cloud
        except InvalidCheckpoint as error:
            warn_foreign(older[index], error)


def read_cloud_history(folder: Path, particles: int = PARTICLES, frames: int = FRAMES) -> CloudHistory:
    """Read at most ``particles`` particles of at most ``frames`` stored clouds; raise InputError if no cloud exists."""
    model = load_model(folder)
    indices = _select_particles(model.cloud.log_rho, particles)
    steps, theta, log_rho = [], [], []
    for cloud in clouds(folder, frames):
        if cloud.theta.shape != model.cloud.theta.shape:
            continue
        steps.append(cloud.step)
        theta.append(cloud.theta[indices].clamp(-LARGEST_COORDINATE, LARGEST_COORDINATE).float())
        log_rho.append(torch.log_softmax(cloud.log_rho, dim=0)[indices])
    all_theta = torch.stack(theta)
    mean, axes = _principal_axes(all_theta.flatten(0, 1))
    return CloudHistory(
        steps=np.array(steps),
        theta=all_theta.numpy(),
        log_rho=torch.stack(log_rho).numpy(),
        columns=coordinate_names(model.neuron, model.columns, model.classes),
        axes=axes.numpy(),
        mean=mean.numpy(),
        particles=indices.numpy(),
    )


def coordinate_names(neuron: Neuron, columns: tuple[str, ...], classes: tuple[str, ...]) -> list[str]:
    """Return the name of each coordinate of a particle: its parameter block, and its feature or class."""
    names: list[str] = []
    for block, length in neuron.coordinates(len(columns)).items():
        if length == 1:
            names.append(block)
        elif length == len(columns) and (block == "w" or length != len(classes)):
            names += [f"{block}: {column}" for column in columns]
        elif length == len(classes) and block != "w":
            names += [f"{block}: {label}" for label in classes]
        elif length == len(classes) * len(columns):
            names += [f"{block}: {label}, {column}" for label in classes for column in columns]
        else:
            names += [f"{block}: {number}" for number in range(1, length + 1)]
    return names


def _select_particles(log_rho: Tensor, count: int) -> Tensor:
    """Return the indices of at most ``count`` particles to draw, given the log weights of the newest cloud."""
    N = len(log_rho)
    if count >= N:
        return torch.arange(N)
    by_weight = torch.sort(log_rho, descending=True, stable=True).indices
    heaviest, rest = by_weight.tensor_split([round(HEAVIEST_SHARE * count)])
    rest = rest.sort().values
    evenly = torch.linspace(0, len(rest) - 1, count - len(heaviest), dtype=torch.float64).round().long()
    return torch.cat((heaviest, rest[evenly])).sort().values


def _principal_axes(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the points and the two directions of largest variance."""
    mean = points.mean(dim=0)
    # Particles of some datasets have 5000 coordinates, for which a full decomposition would take a minute.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        _, singular_values, directions = torch.svd_lowrank(points - mean, q=min(8, *points.shape), niter=8)
    axes = points.new_zeros(2, points.shape[1])
    spanned = int((singular_values[:2] > 0).sum())
    axes[:spanned] = directions.T[:spanned]
    # The sign of an axis is arbitrary; the largest coordinate of each axis is made positive, so that all machines draw
    # the same plot.
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    return mean, torch.where(largest < 0, -axes, axes)
