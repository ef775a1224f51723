"""The sources of configs: the packaged folder, the user's folder (--config-dir), and installed packages.

The files are checked before Hydra reads any of them. They must contain values but no code, and loading them must
terminate: aliases can make a small YAML file expand to billions of nodes, a FIFO has no end, and a folder can link to
itself.

Hydra searches the installed packages (`EntryPointConfigs`) last, so proxlearn's own options and those in the user's
folder take precedence. The names of the options are read from the metadata of the installed packages; a package is
imported only if its dataset is chosen. The config of such a dataset is then checked in the same way as the user's
configs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from proxlearn.core.registry import DATASET_GROUP, LOGGER_GROUP, load_plugin, plugin_error, plugin_names
from proxlearn.errors import InputError
from proxlearn.files.safe_read import user_path

PACKAGE = "proxlearn.configs"


def config_folder() -> Path:
    """Return the absolute path of the folder with the packaged YAML configs.

    In a source tree, this is the folder beside the package, even if another source tree is installed in editable mode.
    """
    source = Path(__file__).resolve().parents[2]
    if not all((source / name).is_file() for name in ("pyproject.toml", "configs/train.yaml")):
        spec = importlib.util.find_spec(PACKAGE)
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations))).absolute()
    return source / "configs"


def read_config_file(name: str) -> dict[str, Any]:
    """Return the values of one packaged file (for example "device/cpu"), without its defaults list."""
    values: dict[str, Any] = yaml.safe_load((config_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in values.items() if key != "defaults"}


def read_dataset_file(name: str) -> dict[str, Any]:
    """Return the values of a packaged dataset merged with the common defaults, without composing a config."""
    merged = OmegaConf.merge(read_config_file("dataset_base"), read_config_file(f"dataset/{name}"))
    values: Any = OmegaConf.to_container(merged)
    return dict(values)


MAX_ENTRIES = 10_000
MAX_BYTES = 100_000
"""Maximum size of a config file in bytes; the files of proxlearn have fewer than 6000 bytes."""
MAX_DEPTH = 50
MAX_NODES = 20_000
"""Maximum number of YAML nodes in a config file; an alias counts as a copy of the node to which it refers."""
SUFFIXES = (".yaml", ".yml")

_search_folder: ContextVar[Path | None] = ContextVar("search_folder", default=None)


class UserSearchPath(SearchPathPlugin):
    """A Hydra plugin that adds the user's folder, and the datasets and loggers of packages, to the search path.

    Hydra searches them last, so they cannot replace proxlearn's configs. The override hydra.searchpath would add the
    user's folder too late, so that a primary config (--config-name) in this folder would not be found.
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
    """Add ``folder``, unless it is None, to Hydra's search path; Hydra must be initialised within the block."""
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
            raise InputError(f"{path}: a pkg:// search path is not allowed because it imports a package", VALUES_ONLY)
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
            raise InputError(
                f"{folder} contains more than {MAX_ENTRIES} files and folders",
                "give a folder that contains only configs",
            )
        yield from (Path(parent, name) for name in sorted(files) if name.lower().endswith(SUFFIXES))


def _load(path: Path) -> list[Any]:
    """Return the YAML documents of a file as Python objects; raise ValueError if the file exceeds a limit."""
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
    """Raise ValueError if a YAML text is nested so deeply that building its nodes would exceed the recursion limit."""
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


PLUGIN_GROUPS = {"dataset": DATASET_GROUP, "logger": LOGGER_GROUP}
"""The config groups that installed packages can extend, with their groups of entry points."""
RESERVED_KEYS = ("name", "defaults")
"""Keys that the CONFIG of a dataset must not set, because ``dataset_values`` sets them."""
VALUES_ONLY = "remove it, because configs may contain only values"


class EntryPointConfigs(ConfigSource):
    """A config source that offers the datasets and loggers of installed packages as options of their groups."""

    @staticmethod
    def scheme() -> str:
        return "entrypoints"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path.strip("/") in ("", *PLUGIN_GROUPS)

    def is_config(self, config_path: str) -> bool:
        group, name = _split(config_path)
        return group in PLUGIN_GROUPS and name in plugin_names(PLUGIN_GROUPS[group])

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        group = config_path.strip("/")
        if group == "":
            return [] if results_filter == ObjectType.CONFIG else sorted(PLUGIN_GROUPS)
        return [] if results_filter == ObjectType.GROUP else plugin_names(PLUGIN_GROUPS[group])

    def load_config(self, config_path: str) -> ConfigResult:
        group, name = _split(config_path)
        # A logger of a package has the same keys as proxlearn's loggers, so the package need not be imported here.
        values = dataset_values(name) if group == "dataset" else {"name": name, "uri": None}
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(values), {"package": None})


def dataset_values(name: str) -> dict[str, Any]:
    """Return the config of a package's dataset: its CONFIG, with defaults from configs/dataset_base.yaml."""

    def refusal(problem: str) -> InputError:
        return plugin_error("dataset", DATASET_GROUP, name, problem)

    config = getattr(load_plugin("dataset", DATASET_GROUP, name), "CONFIG", None)
    if not isinstance(config, Mapping):
        raise refusal("does not define CONFIG as a mapping of config values")
    values = _plain(config)
    if values is None:
        raise refusal("has a CONFIG with values that are not numbers, strings, lists or mappings")
    for key in RESERVED_KEYS:
        if key in values:
            raise refusal(f"sets the reserved key `{key}` in its CONFIG")
    try:
        refuse_targets(values, "CONFIG: ")
    except InputError as error:
        raise refusal(f"is not allowed: {error.problem}") from error
    return {"defaults": ["/dataset_base@_here_"], "name": name, **values}


def refuse_targets(node: Any, prefix: str) -> None:
    """Raise InputError if nested mappings or lists contain `_target_`; the message begins with ``prefix``."""
    if any(text == "_target_" for text in iterate_texts(node)):
        problem = f"{prefix}_target_ is not allowed because Hydra would import and call its value"
        raise InputError(problem, VALUES_ONLY)


def iterate_texts(node: Any) -> Iterator[str]:
    """Yield every string in nested mappings and lists, including the keys of the mappings."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            yield from iterate_texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from iterate_texts(value)


def _split(config_path: str) -> tuple[str, str]:
    """Return the group and the option of a path such as ``dataset/theirs`` or ``dataset/theirs.yaml``."""
    group, _, name = config_path.strip("/").rpartition("/")
    return group, name.removesuffix(".yaml")


def _plain(mapping: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Return a mapping with its tuples converted to lists, or None if it contains an unsupported value.

    The values can be numbers, strings, booleans, None, lists, tuples, and mappings with string keys.
    """

    def convert(node: Any) -> Any:
        if isinstance(node, Mapping):
            if not all(isinstance(key, str) for key in node):
                raise TypeError
            return {key: convert(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return [convert(value) for value in node]
        if node is None or isinstance(node, str | bool | int | float):
            return node
        raise TypeError

    try:
        values: dict[str, Any] = convert(mapping)
    except (TypeError, RecursionError):
        return None
    return values
