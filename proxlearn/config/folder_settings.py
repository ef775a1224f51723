"""Checks of Hydra's output folders: refuse settings without effect, and Hydra's own files in the run folder."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from proxlearn.errors import InputError


def check_folder_settings(composed: DictConfig, is_sweep: bool) -> None:
    """Refuse a subfolder for Hydra's own files, and the folder settings of the other mode (run or sweep)."""
    if composed.hydra.output_subdir is not None:
        problem = "hydra.output_subdir would put Hydra's own files into the run folder"
        raise InputError(problem, "leave it out: the run's config is config.yaml")
    ignored, effective = ("hydra.run", "hydra.sweep.dir") if is_sweep else ("hydra.sweep", "hydra.run.dir")
    overrides: Any = OmegaConf.to_container(composed.hydra.overrides.hydra, resolve=False)
    for override in overrides:
        key = str(override).lstrip("+~").partition("=")[0]
        if key == ignored or key.startswith(f"{ignored}."):
            mode = "a sweep (-m)" if is_sweep else "a single run"
            raise InputError(f"{key} has no effect on {mode}", f"use {effective}=... instead")
