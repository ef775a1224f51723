"""Hydra's own settings of output folders: those that proxlearn would ignore or cannot keep safe are refused."""

from __future__ import annotations

from omegaconf import DictConfig

from proxlearn.errors import InputError


def check_folder_settings(composed: DictConfig, several: bool) -> None:
    """Refuse folders that Hydra would write to behind the run's back, and those of the other mode."""
    if composed.hydra.output_subdir is not None:
        problem = "hydra.output_subdir would put Hydra's own files into the run folder"
        raise InputError(problem, "leave it out: the run's config is config.yaml")
    ignored, instead = ("hydra.run", "hydra.sweep.dir") if several else ("hydra.sweep", "hydra.run.dir")
    for word in composed.hydra.overrides.hydra:
        key = str(word).lstrip("+~").partition("=")[0]
        if key == ignored or key.startswith(f"{ignored}."):
            mode = "a sweep (-m)" if several else "a single run"
            raise InputError(f"{key} has no effect on {mode}", f"use {instead}=... instead")
