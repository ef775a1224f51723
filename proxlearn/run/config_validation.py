"""Conversion of a composed config into a validated TrainConfig, and the resolver for the name of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from proxlearn.config.compose import own_part
from proxlearn.config.hydra_errors import translate_hydra_error
from proxlearn.config.key_suggestions import RENAMED_KEYS, suggest_key
from proxlearn.config.run_name import run_name
from proxlearn.config.schema import ALL_KEYS, TrainConfig, build
from proxlearn.core import options
from proxlearn.core.registry import LOSS_GROUP, NEURON_GROUP, WEIGHTS_GROUP, load_plugin, plugin_names
from proxlearn.errors import InputError
from proxlearn.files.safe_read import absolute_folder, user_path
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.resume_point import newest_checkpoint_file
from proxlearn.run.run_folder import RunFolder
from proxlearn.validators import flag

SWEEP_KEYS = ("fail_fast",)
"""Top-level keys that configure a sweep rather than a run."""

_validated_name: ContextVar[str | None] = ContextVar("validated_name", default=None)


def validate_config(composed: DictConfig) -> TrainConfig:
    """Check a composed config and return it as the TrainConfig of one run."""
    own = own_part(composed)
    _refuse_renamed_keys(OmegaConf.to_container(own, resolve=False))
    try:
        values: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
        raise translate_hydra_error(error) from error
    for key in SWEEP_KEYS:
        flag(key, values.pop(key, False))
    if isinstance(values.get("dataset"), dict):
        # The recipe has copied these defaults to the root of the config, which holds the hyperparameters of the run.
        values["dataset"].pop("default_hyperparameters", None)
    source = values.get("init_from")
    if isinstance(source, str):
        # The newest cloud of a folder changes with time, so the run is identified by the cloud instead of the folder.
        folder = absolute_folder(user_path("init_from", source))
        values |= {"init_from": str(folder), "init_sha256": newest_cloud_sha256(folder)}
    else:
        values["init_sha256"] = None
    config = build(TrainConfig, values)
    _import_plugins(config)
    return config


def _import_plugins(config: TrainConfig) -> None:
    """Raise InputError if a neuron, loss or weight update of another package cannot be imported."""
    for kind, group, name, own_names in (
        ("neuron", NEURON_GROUP, config.dataset.neuron, options.Neuron),
        ("loss", LOSS_GROUP, config.loss, options.Loss),
        ("weight update", WEIGHTS_GROUP, config.weights, options.Weights),
    ):
        if name is not None and name not in get_args(own_names) and name in plugin_names(group):
            load_plugin(kind, group, name)


def _refuse_renamed_keys(values: Any) -> None:
    """Raise InputError for keys that have been renamed since an earlier version; ``build`` ignores some of them."""
    for old_name in RENAMED_KEYS:
        group, _, key = old_name.partition(".")
        if isinstance(values.get(group), dict) and key in values[group]:
            raise InputError(f"unknown key `{old_name}`", suggest_key(old_name, ALL_KEYS))


def newest_cloud_sha256(folder: Path) -> str:
    """Return the checksum of the newest valid checkpoint in a run folder; raise InputError if none is valid."""
    refuse_interrupted(folder)
    problem = InputError(
        f"init_from={str(folder)!r:.200} contains no valid checkpoint", "give a folder that `proxlearn train` created"
    )
    try:
        newest = newest_checkpoint_file(RunFolder(folder))
    except (OSError, ValueError) as error:
        raise problem from error
    if newest is None:
        raise problem
    return newest.sha256


@contextlib.contextmanager
def validated_run_name(config: TrainConfig) -> Iterator[None]:
    """Make ``${proxlearn.run_name:}`` resolve to the run name of a validated config within the block."""
    token = _validated_name.set(run_name(config))
    try:
        yield
    finally:
        _validated_name.reset(token)


def _resolve_run_name(*, _root_: DictConfig) -> str:
    # Outside of a run (`--cfg hydra --resolve`), the config is validated here.
    return _validated_name.get() or run_name(validate_config(_root_))


OmegaConf.register_new_resolver("proxlearn.run_name", _resolve_run_name, replace=True)
