"""Detection of a config.yaml that was edited after its run started and no longer matches the run's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxlearn.config.run_name import digest, flat_settings, settings_digest, trajectory
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError
from proxlearn.run import checkpoint_file
from proxlearn.run.run_folder import RunFolder

DIGEST_LENGTH = 64
"""Length of the digest of the settings, which is the first part of the identity of a run; the digest of the data
follows.
"""


def refuse_edited_settings(folder: RunFolder, config: TrainConfig, status: Mapping[str, Any]) -> None:
    """Raise InputError if ``config``, read from config.yaml, is not the config that the run started with.

    Runs of version 0.1.0 do not store their settings in status.json; for them, the identity in a checkpoint is
    compared.
    """
    original_digest = status.get("settings_sha256")
    if not isinstance(original_digest, str):
        original_digest = _digest_in_checkpoints(folder, digest(config))
    if original_digest in (None, digest(config)):
        return
    difference = describe_difference(config, status.get("settings"), original_digest)
    if difference is None:
        raise InputError(f"{folder.config} was edited after the run started", "undo the edit")
    original, present = difference
    if not original:
        # The values are equal but written differently, such as 1 and 1.0.
        return
    raise InputError(f"{folder.path} started with {original}, but config.yaml has {present}", "undo the edit")


def describe_difference(config: TrainConfig, stored: Any, original_digest: str) -> tuple[str, str] | None:
    """Return the settings that differ as two strings, with the values at the start of the run and those in ``config``.

    ``stored`` holds the settings in status.json. Return None if ``original_digest`` is not their digest, because the
    original values are then unknown.
    """
    if not isinstance(stored, dict) or settings_digest(stored) != original_digest:
        return None
    original, present = flat_settings(stored), flat_settings(trajectory(config))
    names = [key for key in {**original, **present} if original.get(key) != present.get(key)]
    return _format_settings(names, original), _format_settings(names, present)


def _digest_in_checkpoints(folder: RunFolder, expected: str) -> str | None:
    """Return ``expected`` if a checkpoint has this digest, else the digest in the newest one, or None without any."""
    newest = None
    for file in checkpoint_file.valid_checkpoints(folder.checkpoints):
        settings_part = str(file.state.get("run"))[:DIGEST_LENGTH]
        if settings_part == expected:
            return settings_part
        newest = newest or settings_part
    return newest


def _format_settings(names: list[str], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values.get(name)}" for name in names[:4]) + (", ..." if len(names) > 4 else "")
