"""The folder of the packaged YAML configs: inside the installed package, or next to it in a source checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

PACKAGE = "proxlearn.configs"


def config_folder() -> Path:
    """Return the absolute path of the folder of the packaged YAML configs."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).absolute()
    return Path(__file__).resolve().parents[2] / "configs"


def read_config_file(name: str) -> dict[str, Any]:
    """Return the values of one packaged file (for example "device/cpu"), without its defaults list."""
    values: dict[str, Any] = yaml.safe_load((config_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in values.items() if key != "defaults"}


def read_dataset_file(name: str) -> dict[str, Any]:
    """Return the values of a packaged dataset merged with those of the common base, without composing a config."""
    merged = OmegaConf.merge(read_config_file("dataset_base"), read_config_file(f"dataset/{name}"))
    values: Any = OmegaConf.to_container(merged)
    return dict(values)
