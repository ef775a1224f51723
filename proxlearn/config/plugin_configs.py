"""A config source of Hydra for the datasets and loggers that installed packages add: `dataset=theirs`, `logger=theirs`.

Hydra searches this source last, so proxlearn's own options and those in the user's folder take precedence. The names of
the options are read from the metadata of the installed packages; a package is imported only if its dataset is chosen.
The config of such a dataset is checked like the user's configs, which may contain values but no code.
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
"""The entry-point group that extends each config group."""
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
        # A logger of a package has the same keys as proxlearn's own, so its package need not be imported here.
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
    """Raise InputError if a plain structure contains `_target_`; the message begins with ``prefix``, its location."""
    if any(text == "_target_" for text in iterate_texts(node)):
        raise InputError(f"{prefix}_target_ would be imported and called", VALUES_ONLY)


def iterate_texts(node: Any) -> Iterator[str]:
    """Yield every string in a plain structure, including the keys."""
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
    """Return a mapping with its tuples converted to lists, or None if it contains anything but plain values."""

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
