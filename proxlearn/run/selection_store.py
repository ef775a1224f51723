"""Storage of the results of a selection's candidates, one file each, so that an interrupted selection can continue.

The files have the format of checkpoints, are in the same folder, and are deleted when the selection is complete. A file
is used only for the same fit: its key holds the run's settings and data, the candidate's settings, and the rung (the
round of successive halving).
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from proxlearn import __version__
from proxlearn.core.cloud import PointCloud, Screen
from proxlearn.core.step import REVISION
from proxlearn.errors import RunError
from proxlearn.files.atomic import write_atomically
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint_file import InvalidCheckpoint
from proxlearn.run.run_folder import list_candidates
from proxlearn.training.fit import FitState
from proxlearn.training.settings import Settings


class SelectionFiles:
    """The stored results of the candidates of one selection."""

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        self._identity = f"{identity}-{REVISION}-{__version__}"

    def __len__(self) -> int:
        return len(list_candidates(self._folder))

    def load(self, rung: int, candidate: int, settings: Settings) -> FitState | RunError | None:
        """Return the stored result of a candidate after a rung, or None if there is no valid file for this fit."""
        try:
            file = checkpoint_file.read_checkpoint_file(self._path(rung, candidate), named=False)
            if file.state["key"] != self._key(rung, settings):
                return None
            if file.state["error"] is not None:
                return RunError(*file.state["error"])
            # The tensors are cloned for their alignment, as in a checkpoint.
            tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(file.blob).items()}
            radius, step, epsilon = (file.state[name] for name in ("radius", "step", "epsilon"))
            screen = None if radius is None else Screen(tensors["reference"], radius)
            cloud = PointCloud(tensors["theta"], tensors["log_rho"], step, screen, epsilon)
            return FitState(cloud, cloud, tensors["generator"], tuple(file.state["history"]))
        except (*checkpoint_file.PARSE_ERRORS, InvalidCheckpoint, safetensors.SafetensorError, RuntimeError):
            return None

    def save(self, rung: int, candidate: int, settings: Settings, result: FitState | RunError) -> None:
        state: dict[str, Any] = {"key": self._key(rung, settings), "error": None}
        tensors = {"generator": torch.zeros(1, dtype=torch.uint8)}
        if isinstance(result, RunError):
            state["error"] = (result.problem, result.remedy)
        else:
            # The selection continues from the newest cloud and reads the history; the best cloud is not needed.
            cloud, screen = result.newest, result.newest.screen
            tensors = {"theta": cloud.theta, "log_rho": cloud.log_rho, "generator": result.generator}
            tensors |= {} if screen is None else {"reference": screen.reference.clone()}
            state |= {"step": cloud.step, "epsilon": cloud.epsilon, "history": result.history}
            state["radius"] = None if screen is None else screen.radius
        blob = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
        write_atomically(self._path(rung, candidate), checkpoint_file.encode_checkpoint(blob, state))

    def clear(self) -> None:
        for path in list_candidates(self._folder):
            path.unlink(missing_ok=True)

    def _path(self, rung: int, candidate: int) -> Path:
        return self._folder / f"selection-{rung + 1}-{candidate + 1}.safetensors"

    def _key(self, rung: int, settings: Settings) -> str:
        return f"{self._identity}-{rung}-{sorted(asdict(replace(settings, steps=None)).items())}"
