"""The cloud over the recursions: a run's stored checkpoints as frames, for the page and for films."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.predict.folder import load, newest_checkpoint
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.run_identity import require_same_run, warn_foreign

FRAMES, PARTICLES = 60, 300
HEAVIEST = 1 / 3
"""Share of the shown particles that are the newest cloud's heaviest: a weight that grew must be seen. The others are
taken evenly from the rest, whose order means nothing."""
LARGEST_SHOWN = 1e15
"""Coordinates of a diverged cloud are cut here: their squares must fit into float32."""


@dataclass(frozen=True)
class CloudHistory:
    """Some particles of a run at some of its stored steps, oldest first."""

    steps: np.ndarray
    """F."""
    theta: np.ndarray
    """F x P x p, float32."""
    log_rho: np.ndarray
    """F x P: logarithms of shares of the whole cloud's mass, so that exp sums to at most 1."""
    columns: list[str]
    """Names of the p coordinates."""
    axes: np.ndarray
    """2 x p: principal axes of all frames together, orthonormal; zeros where the points span less."""
    mean: np.ndarray
    """p: the point that the axes go through."""
    particles: np.ndarray
    """P: which ones of the N these are, ascending."""

    @property
    def projected(self) -> np.ndarray:
        """F x P x 2: the particles on the principal axes."""
        found: np.ndarray = (self.theta - self.mean) @ self.axes.T
        return found


def clouds(folder: Path, frames: int = FRAMES) -> Iterator[PointCloud]:
    """At most ``frames`` of the stored clouds, evenly among them, from the first to the newest that is whole; damaged
    ones between are left out."""
    store = RunFolder(folder).checkpoints
    newest = newest_checkpoint(RunFolder(folder))
    if newest is None:
        return
    # The stored steps are log-spaced, so that evenly among them is evenly on the axis of the curves.
    older = [path for step, path in reversed(list_checkpoints(store)) if step < newest.cloud.step]
    for place in np.unique(np.linspace(0, len(older), min(frames, len(older) + 1)).round().astype(int)):
        try:
            found = checkpoint.load(older[place]) if place < len(older) else newest
            require_same_run(found.run, newest.run)
            yield found.cloud
        except InvalidCheckpoint as why:
            warn_foreign(older[place], why)


def read_cloud_history(folder: Path, particles: int = PARTICLES, frames: int = FRAMES) -> CloudHistory:
    """The stored clouds of a run, thinned; a run that has stored none is an InputError."""
    model = load(folder)
    chosen = _chosen(model.cloud.log_rho, particles)
    steps, theta, log_rho = [], [], []
    for cloud in clouds(folder, frames):
        if cloud.theta.shape != model.cloud.theta.shape:
            continue
        steps.append(cloud.step)
        theta.append(cloud.theta[chosen].clamp(-LARGEST_SHOWN, LARGEST_SHOWN).float())
        log_rho.append(torch.log_softmax(cloud.log_rho.double(), dim=0)[chosen])
    every = torch.stack(theta)
    mean, axes = _principal(every.flatten(0, 1))
    return CloudHistory(
        steps=np.array(steps),
        theta=every.numpy(),
        log_rho=torch.stack(log_rho).numpy(),
        columns=coordinate_names(model.neuron, model.columns, model.classes),
        axes=axes.numpy(),
        mean=mean.numpy(),
        particles=chosen.numpy(),
    )


def coordinate_names(neuron: Neuron, columns: tuple[str, ...], classes: tuple[str, ...]) -> list[str]:
    """A name for each coordinate of a particle: its block, and the feature or class that it speaks to."""
    names: list[str] = []
    for block, length in neuron.coordinates(len(columns)).items():
        if length == 1:
            names.append(block)
        elif block == "w" and length == len(columns):
            names += [f"{block}: {column}" for column in columns]
        elif block == "w":
            names += [f"{block}: {label}, {column}" for label in classes for column in columns]
        else:
            names += [f"{block}: {label}" for label in classes]
    return names


def _chosen(log_rho: Tensor, particles: int) -> Tensor:
    """Indices of the particles to be shown, the same in every frame."""
    N = len(log_rho)
    if particles >= N:
        return torch.arange(N)
    by_weight = torch.sort(log_rho, descending=True, stable=True).indices
    heaviest, rest = by_weight.tensor_split([round(HEAVIEST * particles)])
    rest = rest.sort().values
    even = torch.linspace(0, len(rest) - 1, particles - len(heaviest), dtype=torch.float64).round().long()
    return torch.cat((heaviest, rest[even])).sort().values


def _principal(points: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the points, and the two directions in which they vary most."""
    mean = points.mean(dim=0)
    # Particles of some datasets have 5000 coordinates: a full decomposition would take a minute.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        _, sizes, found = torch.svd_lowrank(points - mean, q=min(8, *points.shape), niter=8)
    axes = points.new_zeros(2, points.shape[1])
    spanned = int((sizes[:2] > 0).sum())
    axes[:spanned] = found.T[:spanned]
    # Either direction is right: the one in which the largest coordinate grows is the same on every machine.
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    return mean, torch.where(largest < 0, -axes, axes)
