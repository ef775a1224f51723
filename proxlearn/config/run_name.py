"""The settings that affect the result of a run, their hash, and the name of the run folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from proxlearn.config.schema import ADDED_DATASET_KEYS, ADDED_KEYS, TrainConfig, config_values

NOT_TRAJECTORY = (
    "steps",
    "log_every",
    "checkpoint_every",
    "keep_checkpoints",
    "films",
    "overwrite",
    "init_from",
    "logger",
    "threads",
    "recipe",
    "compile",
    "metric_rows",
)
"""Keys that do not affect the trajectory of the particles; runs that differ only in them have the same folder."""


def trajectory(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that determine the trajectory of the particles, as nested dictionaries."""
    values = config_values(config)
    for key in NOT_TRAJECTORY:
        del values[key]
    # Keys that were added later do not change the hash of a run that does not use them.
    values["dataset"] = {
        key: value
        for key, value in values["dataset"].items()
        if key not in ADDED_DATASET_KEYS or value != ADDED_DATASET_KEYS[key]
    }
    return {key: value for key, value in values.items() if key not in ADDED_KEYS or value != ADDED_KEYS[key]}


def digest(config: TrainConfig) -> str:
    """Return the hash of the settings that determine the trajectory; equal hashes mean equal settings."""
    return settings_digest(trajectory(config))


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return the hash of settings in the form in which ``trajectory`` returns them."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten ``{"dataset": {"name": "sine"}}`` to ``{"dataset.name": "sine"}``; tuples become lists, as in JSON."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        nested = isinstance(value, Mapping)
        flat |= flat_settings(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": json.loads(json.dumps(value))}
    return flat


def run_name(config: TrainConfig) -> str:
    """Return the name of the run folder: the main settings and a hash of every setting that affects the result."""
    numbers = {"beta": config.beta, "eps": config.epsilon}
    given = "".join(f"-{name}{value:g}" for name, value in numbers.items() if value is not None)
    return f"{config.recipe}{given}-N{config.N}-seed{config.seed}-{digest(config)[:8]}"
