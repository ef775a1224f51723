"""Checks that the checkpoints in a folder belong to its run, because files of another run may be among them.

This module does not import torch.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint_file import InvalidCheckpoint
from proxlearn.run.run_folder import RunFolder
from proxlearn.terminal.notice import notice


class ForeignCheckpoint(InvalidCheckpoint):
    """Raised if a file is a valid checkpoint of another run."""


def read_identity(folder: RunFolder) -> str | None:
    """Return the identity of the run in a folder, read from its status, or None if it is unknown."""
    try:
        status = read_json(folder.status)
        if isinstance(status.get("run"), str):
            return str(status["run"])
        # Version 0.1.0 did not store the identity in status.json; the checkpoint of the step named there has it.
        if type(status.get("step")) is not int:
            return None
        path = checkpoint_file.checkpoint_path(folder.checkpoints, status["step"])
        return str(checkpoint_file.read_checkpoint_file(path).state["run"])
    except (UnreadableFile, InvalidCheckpoint, KeyError, ValueError):
        return None


def require_same_run(run: str, identity: str | None) -> None:
    """Raise ForeignCheckpoint if a checkpoint's ``run`` differs from ``identity``, unless ``identity`` is None."""
    if identity is not None and run != identity:
        raise ForeignCheckpoint("it belongs to another run")


def warn_foreign(path: Path, why: InvalidCheckpoint) -> None:
    """Print a notice if a checkpoint is skipped because it belongs to another run."""
    if isinstance(why, ForeignCheckpoint):
        _warn_once(path, str(why))


@cache
def _warn_once(path: Path, why: str) -> None:
    """Print the notice once per process, because every plot of a run searches for the newest checkpoint."""
    notice(f"skipping the checkpoint {path.name}: {why}")


def newest_checkpoint_file(folder: RunFolder) -> checkpoint_file.CheckpointFile | None:
    """Return the newest checkpoint of the folder's run whose checksum matches, or None if there is none."""
    identity = read_identity(folder)
    for _, path in checkpoint_file.list_checkpoints(folder.checkpoints):
        try:
            file = checkpoint_file.read_checkpoint_file(path)
            require_same_run(str(file.state.get("run")), identity)
            return file
        except InvalidCheckpoint as why:
            warn_foreign(path, why)
    return None
