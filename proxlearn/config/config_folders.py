"""The folders of YAML configs: the packaged ones, and the user's (--config-dir), whose files are checked.

The files are checked before Hydra reads any of them. They must contain values but no code, and loading them must
terminate: aliases can make a small YAML file expand to billions of nodes, a FIFO has no end, and a folder can link to
itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from proxlearn.config.plugin_configs import VALUES_ONLY, EntryPointConfigs, iterate_texts, refuse_targets
from proxlearn.errors import InputError
from proxlearn.files.safe_read import user_path

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


MAX_ENTRIES = 10_000
MAX_BYTES = 100_000
"""Maximum size of a file in bytes; the configs of proxlearn have less than 6000."""
MAX_DEPTH = 50
MAX_NODES = 20_000
"""Maximum number of nodes of a file, with every alias counted as a copy of the node it refers to."""
SUFFIXES = (".yaml", ".yml")

_search_folder: ContextVar[Path | None] = ContextVar("search_folder", default=None)


class UserSearchPath(SearchPathPlugin):
    """A Hydra plugin that adds the user's folder, and the datasets and loggers of packages, to the search path.

    They come after proxlearn's own configs and cannot replace them. The override hydra.searchpath would add the user's
    folder too late, so that a primary config (--config-name) in this folder would not be found.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        folder = _search_folder.get()
        if folder is not None:
            search_path.append("command-line", f"file://{folder}")
        search_path.append("installed packages", f"{EntryPointConfigs.scheme()}://")


def register_search_path() -> None:
    """Register proxlearn's Hydra plugins in this process; further calls have no effect."""
    for plugin in (EntryPointConfigs, UserSearchPath):
        Plugins.instance().register(plugin)


@contextlib.contextmanager
def user_search_path(folder: str | None) -> Iterator[None]:
    """Add a folder to the search path that Hydra uses if it is initialised in the block; None adds nothing."""
    register_search_path()
    token = _search_folder.set(None if folder is None else Path(folder).absolute())
    try:
        yield
    finally:
        _search_folder.reset(token)


def check_config_folder(text: str) -> None:
    """Raise InputError if a config in the folder cannot be loaded in bounded time, or imports or calls code."""
    folder = user_path("--config-dir", text)
    if not folder.is_dir():
        remedy = f"correct the path (relative paths start from the current folder, {Path.cwd()})"
        raise InputError(f"--config-dir: the folder {folder} does not exist", remedy)
    for path in _config_files(folder):
        try:
            values = _load(path)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            first_line = str(error).partition("\n")[0]
            raise InputError(f"{path} cannot be read as YAML: {first_line}", "correct or remove the file") from error
        refuse_targets(values, f"{path}: ")
        texts = list(iterate_texts(values))
        if any("pkg://" in text for text in texts):
            raise InputError(f"{path}: a pkg:// search path imports a package", VALUES_ONLY)
        if any(text in ("searchpath", "hydra.searchpath") for text in texts):
            raise InputError(
                f"{path}: hydra.searchpath points outside --config-dir", "move the configs into that folder"
            )


def _config_files(folder: Path) -> Iterator[Path]:
    """Yield every YAML file that Hydra could load from the folder; links are followed, but each folder only once."""
    entries = 0
    visited: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real_path = os.path.realpath(parent)
        if real_path in visited:
            folders.clear()
            continue
        visited.add(real_path)
        entries += len(folders) + len(files)
        if entries > MAX_ENTRIES:
            raise InputError(f"{folder} holds more than {MAX_ENTRIES} files", "give a folder that holds configs only")
        yield from (Path(parent, name) for name in sorted(files) if name.lower().endswith(SUFFIXES))


def _load(path: Path) -> list[Any]:
    """Return the YAML documents of one file as plain values; raise ValueError if the file exceeds a limit."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    text = content.decode("utf-8")
    _check_depth(text)
    roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    sizes: dict[int, int] = {}
    if sum(_size(root, sizes) for root in roots) > MAX_NODES:
        raise ValueError(f"it expands to more than {MAX_NODES} values")
    # In YAML, Hydra's package header is a comment, and interpolations are strings.
    return list(yaml.safe_load_all(text))


def _check_depth(text: str) -> None:
    """Raise ValueError if the nesting is too deep, because building the nodes would exceed the recursion limit."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _size(node: Any, sizes: dict[int, int]) -> int:
    """Return the number of values in a YAML node with its aliases expanded.

    ``sizes`` caches the numbers by the id of a node; 0 marks a node that is being counted. Raise ValueError if a node
    contains an alias of itself.
    """
    if id(node) in sizes:
        if sizes[id(node)] == 0:
            raise ValueError("an alias refers to a node that contains it")
        return sizes[id(node)]
    sizes[id(node)] = 0
    children: list[Any] = []
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    sizes[id(node)] = 1 + sum(_size(child, sizes) for child in children)
    return sizes[id(node)]
