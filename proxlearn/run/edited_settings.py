"""Settings that were edited after a run began: its results are not of them, and are not shown under them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxlearn.config.schema import TrainConfig, digest, flat_settings, settings_digest, trajectory
from proxlearn.errors import InputError
from proxlearn.run import checkpoint_file
from proxlearn.run.run_folder import RunFolder

DIGEST_LENGTH = 64
"""Characters of a run's identity that stand for its settings; those of the data follow."""


def refuse_edited_settings(folder: RunFolder, config: TrainConfig, status: Mapping[str, Any]) -> None:
    """Refuse a run folder whose ``config``, from config.yaml, is not the one that the run was made with.

    Runs of version 0.1.0 do not have their settings in status.json; the identity in a checkpoint tells of them.
    """
    made_with = status.get("settings_sha256")
    if not isinstance(made_with, str):
        made_with = _digest_in_checkpoints(folder, digest(config))
    if made_with in (None, digest(config)):
        return
    edit = describe_difference(config, status.get("settings"), made_with)
    if edit is None:
        raise InputError(f"{folder.config} was edited after the run began", "undo the edit")
    began, now = edit
    if not began:
        # The same values in another spelling, such as 1 and 1.0.
        return
    raise InputError(f"{folder.path} began with {began}, and config.yaml has {now}", "set it back")


def describe_difference(config: TrainConfig, began: Any, made_with: str) -> tuple[str, str] | None:
    """The settings that differ, as they were when the run began and as they are now; None where that is not known.

    ``began`` are the settings that status.json has; they count if ``made_with`` is their digest.
    """
    if not isinstance(began, dict) or settings_digest(began) != made_with:
        return None
    earlier, now = flat_settings(began), flat_settings(trajectory(config))
    names = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
    return _format_settings(names, earlier), _format_settings(names, now)


def _digest_in_checkpoints(folder: RunFolder, expected: str) -> str | None:
    """``expected`` if a checkpoint has it, otherwise what the newest one has; None where there is none."""
    newest = None
    for file in checkpoint_file.valid_checkpoints(folder.checkpoints):
        found = str(file.state.get("run"))[:DIGEST_LENGTH]
        if found == expected:
            return found
        newest = newest or found
    return newest


def _format_settings(names: list[str], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values.get(name)}" for name in names[:4]) + (", ..." if len(names) > 4 else "")
