"""The config groups that installed packages extend: `dataset=theirs` and `logger=theirs`, as a source of Hydra.

Hydra asks this source last, so that proxlearn's own options and the user's folder come first. The names of the options
are read from the metadata of the installed packages; a package is imported only if its dataset is chosen. The values
that it brings are checked like the user's configs: they hold values, never code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

from proxlearn.core.registry import DATASET_GROUP, LOGGER_GROUP, load_plugin, plugin_error, plugin_names
from proxlearn.errors import InputError

PLUGIN_GROUPS = {"dataset": DATASET_GROUP, "logger": LOGGER_GROUP}
"""Groups of configs, and the groups of entry points that extend them."""
RESERVED_KEYS = ("name", "defaults")
"""Keys of a dataset's config that follow from its entry point."""
VALUES_ONLY = "remove it, because configs may contain only values"


class EntryPointConfigs(ConfigSource):
    """The datasets and loggers of installed packages as options of their config groups."""

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
        # A logger of a package has the same keys as proxlearn's own, so that its package need not be imported here.
        values = dataset_values(name) if group == "dataset" else {"name": name, "uri": None}
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(values), {"package": None})


def dataset_values(name: str) -> dict[str, Any]:
    """Return the config of a package's dataset: its CONFIG, which completes configs/dataset_base.yaml."""

    def refusal(problem: str) -> InputError:
        return plugin_error("dataset", DATASET_GROUP, name, problem)

    config = getattr(load_plugin("dataset", DATASET_GROUP, name), "CONFIG", None)
    if not isinstance(config, Mapping):
        raise refusal("has no CONFIG, a mapping of config values")
    values = _plain(config)
    if values is None:
        raise refusal("has a CONFIG with other things than numbers, strings, lists and mappings")
    for key in RESERVED_KEYS:
        if key in values:
            raise refusal(f"sets `{key}` in its CONFIG, which follows from its entry point")
    try:
        refuse_targets(values, "CONFIG: ")
    except InputError as error:
        raise refusal(f"is not allowed: {error.problem}") from error
    return {"defaults": ["/dataset_base@_here_"], "name": name, **values}


def refuse_targets(node: Any, prefix: str) -> None:
    """Refuse a plain structure with a `_target_`; ``prefix`` tells in the message where it is."""
    if any(text == "_target_" for text in iterate_texts(node)):
        raise InputError(f"{prefix}_target_ would be imported and called", VALUES_ONLY)


def iterate_texts(node: Any) -> Iterator[str]:
    """Yield every string in a plain structure, keys included."""
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
    """Return a mapping as plain values, tuples as lists; None if something else is in it."""

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
