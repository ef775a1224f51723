"""Checkpoints: the cloud and all that the next step needs, in one safetensors file that vouches for itself.

The state that is not a tensor is JSON inside the file's header. The header also carries a sha256 of the whole file,
computed with the checksum's own place filled with zeros, so that no byte can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.run.files import write_atomically

FORMAT = "proxlearn-cloud-1"
BLANK = b"0" * 64
CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run from which it can go on exactly."""

    cloud: PointCloud
    generator: Tensor
    """State of the noise generator, bytes."""
    unmet: int = 0
    """Proximal steps so far that did not meet their tolerance within L rounds."""
    switched_at: int | None = None
    """Step at which the fallback precision took over."""


class InvalidCheckpoint(Exception):
    """The file is damaged, or is something else."""


def path_of(folder: Path, step: int) -> Path:
    return folder / f"cloud-{step:09d}.safetensors"


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write one checkpoint; returns its path."""
    cloud = checkpoint.cloud
    tensors = {
        "theta": cloud.theta,
        "rho": cloud.rho,
        "log_rho": cloud.log_rho,
        "generator": checkpoint.generator,
    }
    state = {"step": cloud.step, "unmet": checkpoint.unmet, "switched_at": checkpoint.switched_at}
    metadata = {"format": FORMAT, "state": json.dumps(state), "sha256": BLANK.decode()}
    blob = safetensors.torch.save({k: t.detach().cpu().contiguous() for k, t in tensors.items()}, metadata)
    start, end = _checksum_place(blob)
    blob = blob[:start] + hashlib.sha256(blob).hexdigest().encode() + blob[end:]
    path = path_of(folder, cloud.step)
    write_atomically(path, blob)
    return path


def load(path: Path) -> Checkpoint:
    """Read one checkpoint, or raise InvalidCheckpoint."""
    try:
        blob = path.read_bytes()
        start, end = _checksum_place(blob)
        if hashlib.sha256(blob[:start] + BLANK + blob[end:]).hexdigest().encode() != blob[start:end]:
            raise InvalidCheckpoint("the checksum does not match")
        header = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]
        if header["format"] != FORMAT:
            raise InvalidCheckpoint(f"format {header['format']!r} instead of {FORMAT!r}")
        state: dict[str, Any] = json.loads(header["state"])
        tensors = safetensors.torch.load(blob)
        cloud = PointCloud(tensors["theta"], tensors["log_rho"], int(state["step"]))
        return Checkpoint(cloud, tensors["generator"], int(state["unmet"]), state["switched_at"])
    except InvalidCheckpoint:
        raise
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise InvalidCheckpoint(f"{type(error).__name__}: {error}".splitlines()[0]) from error


def newest(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    return sorted(folder.glob("cloud-*.safetensors"), reverse=True)


def newest_valid(
    folder: Path, skipped: Callable[[Path, InvalidCheckpoint], None] = lambda path, why: None
) -> Checkpoint | None:
    """The newest checkpoint that is whole; each damaged one on the way is told to ``skipped``."""
    for path in newest(folder):
        try:
            return load(path)
        except InvalidCheckpoint as why:
            skipped(path, why)
    return None


def to(checkpoint: Checkpoint, device: torch.device) -> Checkpoint:
    """The same moment with its cloud on a device."""
    return replace(checkpoint, cloud=checkpoint.cloud.to(device, checkpoint.cloud.theta.dtype))


def _checksum_place(blob: bytes) -> tuple[int, int]:
    header_end = 8 + int.from_bytes(blob[:8], "little")
    found = CHECKSUM.search(blob, 8, min(header_end, len(blob)))
    if found is None:
        raise InvalidCheckpoint("no checksum in its header")
    return found.span(1)
