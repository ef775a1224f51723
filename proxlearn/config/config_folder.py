"""Where the YAML files of the configs are: inside the installed package, or beside it in a bare checkout."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE = "proxlearn.configs"


def config_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(__file__).resolve().parents[2] / "configs"


def config_path() -> str:
    """The same place in the words of Hydra's search path."""
    return f"pkg://{PACKAGE}" if importlib.util.find_spec(PACKAGE) is not None else str(config_folder())
