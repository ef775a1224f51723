"""The composed config as the one dataclass that goes further in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from proxlearn.config import schema
from proxlearn.config.compose import translate_hydra_error
from proxlearn.errors import InputError
from proxlearn.files.user_paths import absolute_folder, user_path
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.run_identity import newest_checkpoint_file
from proxlearn.validators import flag

SWEEP_KEYS = ("fail_fast",)
"""Keys beside those of a run that are for a sweep only."""


def validate_config(composed: DictConfig) -> schema.TrainConfig:
    """What one run is to do."""
    ours = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    try:
        values: Any = OmegaConf.to_container(ours, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
        raise translate_hydra_error(error) from error
    for key in SWEEP_KEYS:
        flag(key, values.pop(key, False))
    if isinstance(values.get("dataset"), dict):
        # The dataset's paper settings have done their work: the recipe took its defaults from them.
        values["dataset"].pop("paper", None)
    source = values.get("init_from")
    if isinstance(source, str):
        # Not the folder, whose newest cloud changes, but the cloud itself belongs to what determines the run.
        folder = absolute_folder(user_path("init_from", source))
        values |= {"init_from": str(folder), "init_sha256": newest_cloud_sha256(folder)}
    else:
        values["init_sha256"] = None
    return schema.build(schema.TrainConfig, values)


def newest_cloud_sha256(folder: Path) -> str:
    """The checksum of the newest valid checkpoint of the run in a folder."""
    refuse_interrupted(folder)
    problem = InputError(
        f"init_from={str(folder)!r:.200} holds no valid checkpoint", "name a folder that `proxlearn train` made"
    )
    try:
        newest = newest_checkpoint_file(RunFolder(folder))
    except (OSError, ValueError) as error:
        raise problem from error
    if newest is None:
        raise problem
    return newest.sha256


OmegaConf.register_new_resolver(
    "proxlearn.run_name", lambda *, _root_: schema.run_name(validate_config(_root_)), replace=True
)
