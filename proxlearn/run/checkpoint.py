"""Checkpoints: the cloud and everything that the next step needs, in a checksummed file (checkpoint_file.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud, Screen
from proxlearn.errors import RunError
from proxlearn.files.atomic import write_atomically
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint_file import CheckpointFile, InvalidCheckpoint, list_checkpoints, read_checkpoint_file
from proxlearn.run.log_schedule import is_film

Number = float | int | bool | None


@dataclass(frozen=True)
class MetricsPosition:
    """How far metrics.csv had got: its length in bytes and their sha256."""

    size: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run from which it can go on exactly."""

    cloud: PointCloud
    generator: Tensor
    """State of the noise generator, bytes."""
    run: str
    """Digest of what determines the trajectory: a file of another run is told by it."""
    unmet: int = 0
    """Proximal steps so far that did not meet their tolerance within L rounds."""
    switched_at: int | None = None
    """Step at which the fallback precision took over."""
    metrics: MetricsPosition = MetricsPosition()
    proximal: Mapping[str, Number] | None = None
    """Figures of the step that led to the cloud, which the cloud alone does not tell: a run may be asked to end here.
    Empty for a step without them; None where they are not known (checkpoints of version 0.1.0)."""


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write one checkpoint; returns its path. What is not finite is never written."""
    cloud = checkpoint.cloud
    tensors = {
        "theta": cloud.theta,
        "rho": cloud.rho,
        "log_rho": cloud.log_rho,
        "generator": checkpoint.generator,
    }
    if cloud.screen is not None:
        # A copy, where the reference is the cloud itself: one file holds no tensor twice under two names.
        tensors["reference"] = cloud.screen.reference.clone()
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise RunError(
                f"{name} is not finite at step {cloud.step}, so no checkpoint is written",
                "choose a smaller h or a smaller box dataset.initial, or device.dtype=float64",
            )
    state = {
        "step": cloud.step,
        "run": checkpoint.run,
        "unmet": checkpoint.unmet,
        "switched_at": checkpoint.switched_at,
        "metrics_size": checkpoint.metrics.size,
        "metrics_sha256": checkpoint.metrics.sha256,
        "radius": None if cloud.screen is None else cloud.screen.radius,
        "epsilon": cloud.epsilon,
        "proximal": None if checkpoint.proximal is None else dict(checkpoint.proximal),
    }
    blob = safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    path = checkpoint_file.checkpoint_path(folder, cloud.step)
    write_atomically(path, checkpoint_file.encode_checkpoint(blob, state))
    return path


def load(path: Path) -> Checkpoint:
    """Read one checkpoint, or raise InvalidCheckpoint."""
    return parse_checkpoint(read_checkpoint_file(path))


def parse_checkpoint(file: CheckpointFile) -> Checkpoint:
    """A sealed file's content; its checksum holds, but who wrote it is not known, so everything is checked."""
    try:
        # Cloned, because views into the file's bytes are not aligned and a sum's bits may depend on alignment.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(file.blob).items()}
        theta, log_rho, generator = tensors["theta"], tensors["log_rho"], tensors["generator"]
        step, unmet, switched_at = (file.state[name] for name in ("step", "unmet", "switched_at"))
        mark = MetricsPosition(file.state["metrics_size"], file.state["metrics_sha256"])
        numbers = (step, unmet, mark.size, 0 if switched_at is None else switched_at)
        whole = (
            all(type(number) is int and number >= 0 for number in numbers)
            and isinstance(mark.sha256, str)
            and theta.dtype == log_rho.dtype
            and theta.dtype in (torch.float32, torch.float64)
            and theta.ndim == 2
            and log_rho.shape == theta.shape[:1]
            and generator.dtype == torch.uint8
            and generator.ndim == 1
            and all(_is_finite(tensor) for tensor in tensors.values())
        )
        if not whole:
            raise InvalidCheckpoint("its tensors or its state are not those of a run")
        screen = _parse_screen(tensors.get("reference"), file.state["radius"], theta)
        cloud = PointCloud(theta, log_rho, step, screen, _parse_positive(file.state.get("epsilon"), "epsilon"))
        proximal = _parse_proximal(file.state.get("proximal"))
        return Checkpoint(cloud, generator, str(file.state["run"]), unmet, switched_at, mark, proximal)
    except (*checkpoint_file.PARSE_ERRORS, safetensors.SafetensorError, RuntimeError) as error:
        raise InvalidCheckpoint(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error


def newest_valid(
    folder: Path,
    skipped: Callable[[Path, InvalidCheckpoint], None] = lambda path, why: None,
    require: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> Checkpoint | None:
    """The newest checkpoint that is whole and that ``require`` lets pass; each other one is told to ``skipped``."""
    for _, path in list_checkpoints(folder):
        try:
            found = load(path)
            require(found)
            return found
        except InvalidCheckpoint as why:
            skipped(path, why)
    return None


def prune(folder: Path, step: int, keep: int, every: int, films: bool, protected: Collection[int] = ()) -> None:
    """Delete what nobody needs once the checkpoint of ``step`` is durable.

    Kept: the ``protected`` steps, which were stored under other settings than the present ones; those for films (where
    films are wanted), the newest ``keep``, and the newest ``keep`` of the regular ones,
    so that a run which was interrupted has all that an uninterrupted one has. Files of later steps (damaged ones that
    were skipped) are not counted: they must not push out good ones.
    """
    older = [(k, path) for k, path in list_checkpoints(folder) if k <= step]
    regular = [(k, path) for k, path in older if k % every == 0]
    kept = {path for _, path in older[:keep] + regular[:keep]}
    for k, path in older:
        if path not in kept and k not in protected and not (films and is_film(k)):
            path.unlink(missing_ok=True)


def move_to_device(checkpoint: Checkpoint, device: torch.device) -> Checkpoint:
    """The same moment with its cloud on a device."""
    return replace(checkpoint, cloud=checkpoint.cloud.to(device, checkpoint.cloud.theta.dtype))


def _parse_screen(reference: Tensor | None, radius: object, theta: Tensor) -> Screen | None:
    """The neighbour list's reference, if there was one."""
    if reference is None and radius is None:
        return None
    if reference is None or reference.shape != theta.shape or reference.dtype != theta.dtype:
        raise InvalidCheckpoint("its reference cloud does not fit its cloud")
    reach = _parse_positive(radius, "radius")
    if reach is None:
        raise InvalidCheckpoint("its reference cloud has no radius")
    return Screen(reference, reach)


def _parse_proximal(values: object) -> dict[str, Number] | None:
    """The figures of the last step; checkpoints of version 0.1.0 have none."""
    if values is None:
        return None
    if not isinstance(values, dict) or not all(isinstance(value, Number) for value in values.values()):
        raise InvalidCheckpoint("its figures of the last step are no numbers")
    return values


def _parse_positive(value: object, name: str) -> float | None:
    """A positive number, or none."""
    if value is not None and (not isinstance(value, float) or not 0 < value < math.inf):
        raise InvalidCheckpoint(f"its {name} is no positive number")
    return value


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
