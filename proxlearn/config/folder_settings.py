"""Validation of Hydra's settings for output folders."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from proxlearn.errors import InputError


def check_folder_settings(composed: DictConfig, is_sweep: bool) -> None:
    """Raise InputError if a setting of Hydra's output folders has no effect or is not allowed.

    A single run ignores the settings of hydra.sweep, and a sweep ignores those of hydra.run. A subfolder for Hydra's
    files in the run folder is not allowed.
    """
    if composed.hydra.output_subdir is not None:
        problem = "hydra.output_subdir would put Hydra's own files into the run folder"
        raise InputError(problem, "leave it out (the run's config is config.yaml)")
    ignored, effective = ("hydra.run", "hydra.sweep.dir") if is_sweep else ("hydra.sweep", "hydra.run.dir")
    overrides: Any = OmegaConf.to_container(composed.hydra.overrides.hydra, resolve=False)
    for override in overrides:
        key = str(override).lstrip("+~").partition("=")[0]
        if key == ignored or key.startswith(f"{ignored}."):
            mode = "a sweep (-m)" if is_sweep else "a single run"
            raise InputError(f"{key} has no effect on {mode}", f"use {effective}=... instead")
