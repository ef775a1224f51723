"""A user's folder of configs (--config-dir), checked before Hydra reads any of it.

Configs hold values, never code, and loading them must end: aliases can make a small YAML file expand to billions of
nodes, a FIFO never ends, and a folder can hold a link to itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from proxlearn.errors import InputError
from proxlearn.files.user_paths import user_path

VALUES_ONLY = "configs hold values, not code: take it out"
MOST_ENTRIES = 10_000
MOST_BYTES = 100_000
"""Per file; proxlearn's own configs have less than 5000."""
MOST_DEPTH = 50
MOST_NODES = 20_000
"""Per file, with every alias counted as a copy of what it stands for."""
SUFFIXES = (".yaml", ".yml")


def check_config_folder(text: str) -> None:
    """Refuse configs that could not be loaded in bounded time, or that would import or call something."""
    folder = user_path("--config-dir", text)
    if not folder.is_dir():
        remedy = f"relative paths start where the command did: {Path.cwd()}"
        raise InputError(f"--config-dir: no folder {folder}", remedy)
    for path in _config_files(folder):
        try:
            values = _load(path)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            first = str(error).partition("\n")[0]
            raise InputError(f"{path} cannot be read as YAML: {first}", "correct it, or take it out") from error
        refuse_targets(values, f"{path}: ")
        texts = list(texts_in(values))
        if any("pkg://" in text for text in texts):
            raise InputError(f"{path}: a pkg:// search path imports a package", VALUES_ONLY)
        if any(text in ("searchpath", "hydra.searchpath") for text in texts):
            raise InputError(f"{path}: hydra.searchpath leads out of --config-dir", "put the configs into that folder")


def refuse_targets(node: Any, where: str) -> None:
    if any(text == "_target_" for text in texts_in(node)):
        raise InputError(f"{where}_target_ would be imported and called", VALUES_ONLY)


def texts_in(node: Any) -> Iterator[str]:
    """Every text in a plain structure, keys included."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            yield from texts_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts_in(value)


def _config_files(folder: Path) -> Iterator[Path]:
    """Every YAML file that Hydra could load from the folder; links are followed, each folder once."""
    entries = 0
    visited: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        entries += len(folders) + len(files)
        if entries > MOST_ENTRIES:
            raise InputError(f"{folder} holds more than {MOST_ENTRIES} files", "name a folder that holds configs only")
        yield from (Path(here, name) for name in sorted(files) if name.lower().endswith(SUFFIXES))


def _load(path: Path) -> list[Any]:
    """The documents of one file as plain values."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    text = content.decode("utf-8")
    _check_depth(text)
    roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    sizes: dict[int, int] = {}
    if sum(_size(root, sizes) for root in roots) > MOST_NODES:
        raise ValueError(f"it stands for more than {MOST_NODES} values")
    # A header of Hydra's is a comment to YAML, and interpolations are texts.
    return list(yaml.safe_load_all(text))


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep")


def _size(node: Any, sizes: dict[int, int]) -> int:
    """How many values a node stands for, aliases expanded; the sizes of the nodes above it are 0 meanwhile."""
    if id(node) in sizes:
        if sizes[id(node)] == 0:
            raise ValueError("an alias stands for something that contains it")
        return sizes[id(node)]
    sizes[id(node)] = 0
    parts: list[Any] = []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]
