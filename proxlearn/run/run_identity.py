"""Which checkpoints of a folder are its run's own: a whole file of another run may lie among them. Free of torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint_file import InvalidCheckpoint
from proxlearn.run.run_folder import RunFolder
from proxlearn.terminal.notice import notice


class ForeignCheckpoint(InvalidCheckpoint):
    """The file is whole, and another run's."""


def read_identity(folder: RunFolder) -> str | None:
    """Identity of the run in a folder, by its status; None where nothing tells it."""
    try:
        status = read_json(folder.status)
        if isinstance(status.get("run"), str):
            return str(status["run"])
        # Version 0.1.0 did not write it down; the checkpoint that its status speaks of has it.
        if type(status.get("step")) is not int:
            return None
        return str(
            checkpoint_file.read_checkpoint_file(
                checkpoint_file.checkpoint_path(folder.checkpoints, status["step"])
            ).state["run"]
        )
    except (UnreadableFile, InvalidCheckpoint, KeyError, ValueError):
        return None


def require_same_run(run: str, identity: str | None) -> None:
    """Raise ForeignCheckpoint where a checkpoint of ``run`` is not of the run ``identity``, as far as that is known."""
    if identity is not None and run != identity:
        raise ForeignCheckpoint("it belongs to another run")


def warn_foreign(path: Path, why: InvalidCheckpoint) -> None:
    """Say which whole checkpoint is not used, and why."""
    if isinstance(why, ForeignCheckpoint):
        _warn_once(path, str(why))


@cache
def _warn_once(path: Path, why: str) -> None:
    """Each picture of a run looks for its newest cloud."""
    notice(f"skipping the checkpoint {path.name}: {why}")


def newest_checkpoint_file(folder: RunFolder) -> checkpoint_file.CheckpointFile | None:
    """The newest checkpoint of the folder's own run whose checksum holds."""
    identity = read_identity(folder)
    for _, path in checkpoint_file.list_checkpoints(folder.checkpoints):
        try:
            file = checkpoint_file.read_checkpoint_file(path)
            require_same_run(str(file.state.get("run")), identity)
            return file
        except InvalidCheckpoint as why:
            warn_foreign(path, why)
    return None
