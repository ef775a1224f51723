"""Checkpoints: the cloud and everything that the next step needs, in a file with a checksum (checkpoint_file.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud, Screen
from proxlearn.core.schedules import is_film
from proxlearn.core.step import REVISION
from proxlearn.errors import RunError
from proxlearn.files.atomic import write_atomically
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint_file import CheckpointFile, InvalidCheckpoint, list_checkpoints, read_checkpoint_file

Number = float | int | bool | None


@dataclass(frozen=True)
class MetricsPosition:
    """A position in metrics.csv: the number of bytes before it, and their sha256."""

    size: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a step; a run that continues from this state gives bit-identical results."""

    cloud: PointCloud
    generator: Tensor
    """State of the noise generator, as bytes."""
    run: str
    """Identity of the run (Experiment.identity); a checkpoint with another identity belongs to another run."""
    unmet: int = 0
    """Number of proximal steps that did not reach their tolerance within L rounds."""
    switched_at: int | None = None
    """Step at which the run switched to the fallback precision."""
    metrics: MetricsPosition = MetricsPosition()
    """Position of the end of metrics.csv after this step."""
    revision: int = REVISION
    """Revision of the recursion that computed the cloud (core/step.py)."""
    proximal: Mapping[str, Number] | None = None
    """Metrics of the proximal step that led to the cloud; they cannot be computed from the cloud.

    They are needed for the last row of metrics.csv if the run ends at this step. The mapping is empty if the step has
    no such metrics. The value is None if the metrics are unknown, as in checkpoints of version 0.1.0.
    """


def save(folder: Path, checkpoint: Checkpoint, shards: Sequence[str] | None = None) -> Path:
    """Write one checkpoint and return its path; raise RunError if a tensor is not finite.

    If the ranks have already written the parts of the cloud with ``save_shard``, ``shards`` contains the checksums
    of these parts in row order, and the file lists the checksums instead of containing the cloud. This file is written
    last, so that a checkpoint is either complete or does not exist.
    """
    cloud = checkpoint.cloud
    tensors = {"generator": checkpoint.generator}
    if shards is None:
        tensors = _cloud_tensors(cloud, slice(None)) | tensors
    state = {
        "step": cloud.step,
        "run": checkpoint.run,
        "unmet": checkpoint.unmet,
        "switched_at": checkpoint.switched_at,
        "metrics_size": checkpoint.metrics.size,
        "metrics_sha256": checkpoint.metrics.sha256,
        "radius": None if cloud.screen is None else cloud.screen.radius,
        "epsilon": cloud.epsilon,
        "revision": checkpoint.revision,
        "proximal": None if checkpoint.proximal is None else dict(checkpoint.proximal),
    }
    file_format = checkpoint_file.FORMAT
    if shards is not None:
        state["shards"], file_format = list(shards), checkpoint_file.MANIFEST_FORMAT
    path = checkpoint_file.checkpoint_path(folder, cloud.step)
    write_atomically(path, checkpoint_file.encode_checkpoint(_encode_tensors(tensors), state, file_format))
    return path


def save_shard(folder: Path, checkpoint: Checkpoint, rows: slice) -> str:
    """Write the given rows of the cloud of a checkpoint to a separate file, and return the checksum of the file."""
    cloud = checkpoint.cloud
    state = {"step": cloud.step, "run": checkpoint.run, "rows": [rows.start, rows.stop]}
    blob = _encode_tensors(_cloud_tensors(cloud, rows))
    content = checkpoint_file.encode_checkpoint(blob, state, checkpoint_file.SHARD_FORMAT)
    sha256 = checkpoint_file.checksum_of(content)
    write_atomically(checkpoint_file.shard_path(folder, cloud.step, sha256), content)
    return sha256


def _cloud_tensors(cloud: PointCloud, rows: slice) -> dict[str, Tensor]:
    """Return the given rows of the tensors of a cloud, by name; raise RunError if a tensor is not finite."""
    tensors = {"theta": cloud.theta, "rho": cloud.rho, "log_rho": cloud.log_rho}
    if cloud.screen is not None:
        # The reference may be the cloud itself, and safetensors rejects tensors that share memory, so it is cloned.
        tensors["reference"] = cloud.screen.reference.clone()
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise RunError(
                f"{name} is not finite at step {cloud.step}, so no checkpoint is written",
                "choose a smaller h, a smaller box in dataset.initial, or device.dtype=float64",
            )
    return {name: tensor[rows] for name, tensor in tensors.items()}


def _encode_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    content: bytes = safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )
    return content


def load(path: Path) -> Checkpoint:
    """Read one checkpoint; raise InvalidCheckpoint if the file is not a valid checkpoint."""
    return parse_checkpoint(read_checkpoint_file(path))


def parse_checkpoint(file: CheckpointFile) -> Checkpoint:
    """Parse a checkpoint file with a verified checksum; raise InvalidCheckpoint if one of its values is not valid."""
    try:
        # The tensors are cloned to align them in memory, because the bits of a sum may depend on the alignment.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(file.blob).items()}
        tensors |= _join_shards(file.shards)
        theta, log_rho, generator = tensors["theta"], tensors["log_rho"], tensors["generator"]
        step, unmet, switched_at = (file.state[name] for name in ("step", "unmet", "switched_at"))
        metrics = MetricsPosition(file.state["metrics_size"], file.state["metrics_sha256"])
        revision = file.state.get("revision", 1)
        numbers = (step, unmet, metrics.size, 0 if switched_at is None else switched_at, revision)
        is_valid = (
            all(type(number) is int and number >= 0 for number in numbers)
            and isinstance(metrics.sha256, str)
            and theta.dtype in (torch.float32, torch.float64)
            and log_rho.dtype in (theta.dtype, torch.float64)
            and theta.ndim == 2
            and log_rho.shape == theta.shape[:1]
            and generator.dtype == torch.uint8
            and generator.ndim == 1
            and all(_is_finite(tensor) for tensor in tensors.values())
        )
        if not is_valid:
            raise InvalidCheckpoint("its tensors or its state have invalid types, shapes or values")
        screen = _parse_screen(tensors.get("reference"), file.state["radius"], theta)
        cloud = PointCloud(theta, log_rho, step, screen, _parse_positive(file.state.get("epsilon"), "epsilon"))
        proximal = _parse_proximal(file.state.get("proximal"))
        return Checkpoint(cloud, generator, str(file.state["run"]), unmet, switched_at, metrics, revision, proximal)
    except (*checkpoint_file.PARSE_ERRORS, safetensors.SafetensorError, RuntimeError) as error:
        raise InvalidCheckpoint(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error


def newest_valid(
    folder: Path,
    skipped: Callable[[Path, InvalidCheckpoint], None] = lambda path, why: None,
    require: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> Checkpoint | None:
    """Return the newest valid checkpoint that ``require`` accepts, or None if no checkpoint is valid and accepted.

    ``require`` raises InvalidCheckpoint to reject a checkpoint. ``skipped`` is called with the path of each damaged or
    rejected checkpoint, and with the error.
    """
    for _, path in list_checkpoints(folder):
        try:
            checkpoint = load(path)
            require(checkpoint)
            return checkpoint
        except InvalidCheckpoint as why:
            skipped(path, why)
    return None


def prune(folder: Path, step: int, keep: int, every: int, films: bool, protected: Collection[int] = ()) -> None:
    """Delete the checkpoints that are no longer needed once the checkpoint of ``step`` is on disk.

    The following checkpoints are kept: those of the ``protected`` steps, which were stored under other settings; those
    of the film steps, if ``films`` is true; the newest ``keep``; and the newest ``keep`` at multiples of ``every``, so
    that an interrupted run has all the checkpoints of an uninterrupted one. Checkpoints of later steps are damaged and
    were skipped; they are neither counted nor deleted.
    """
    older = [(k, path) for k, path in list_checkpoints(folder) if k <= step]
    regular = [(k, path) for k, path in older if k % every == 0]
    kept = {path for _, path in older[:keep] + regular[:keep]}
    for k, path in older:
        if path not in kept and k not in protected and not (films and is_film(k)):
            path.unlink(missing_ok=True)
    for path in checkpoint_file.unused_shards(folder, step):
        path.unlink(missing_ok=True)


def move_to_device(checkpoint: Checkpoint, device: torch.device) -> Checkpoint:
    """Return the checkpoint with its cloud moved to a device."""
    return replace(checkpoint, cloud=checkpoint.cloud.to(device, checkpoint.cloud.theta.dtype))


def _join_shards(shards: Collection[bytes]) -> dict[str, Tensor]:
    """Concatenate the tensors of the parts of a cloud, and return them by name."""
    parts = [safetensors.torch.load(shard) for shard in shards]
    return {name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else ())}


def _parse_screen(reference: Tensor | None, radius: object, theta: Tensor) -> Screen | None:
    """Return the reference cloud and the radius of the neighbour list, or None if the run had no neighbour list."""
    if reference is None and radius is None:
        return None
    if reference is None or reference.shape != theta.shape or reference.dtype != theta.dtype:
        raise InvalidCheckpoint("the reference cloud of its neighbour list does not match its cloud")
    checked_radius = _parse_positive(radius, "radius")
    if checked_radius is None:
        raise InvalidCheckpoint("the reference cloud of its neighbour list has no radius")
    return Screen(reference, checked_radius)


def _parse_proximal(values: object) -> dict[str, Number] | None:
    """Return the metrics of the last step, or None for a checkpoint of version 0.1.0, which does not contain them."""
    if values is None:
        return None
    if not isinstance(values, dict) or not all(isinstance(value, Number) for value in values.values()):
        raise InvalidCheckpoint("the metrics of its last step are not numbers")
    return values


def _parse_positive(value: object, name: str) -> float | None:
    """Return ``value`` if it is a positive number or None; otherwise raise InvalidCheckpoint."""
    if value is not None and (not isinstance(value, float) or not 0 < value < math.inf):
        raise InvalidCheckpoint(f"its {name} is not a positive number")
    return value


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
