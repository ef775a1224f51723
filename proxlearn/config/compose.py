"""Composition of a config from a command line with Hydra's public API, and checks that the config is safe.

A config may contain only values. Hydra, however, lets a config import and call objects (`_target_`, callbacks, logging
handlers, pickled reruns, packages as search paths). proxlearn uses none of these features, and rejects configs that use
them before Hydra acts on the config.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from proxlearn.config.arguments import hydra_arguments, parse_arguments
from proxlearn.config.config_folders import (
    VALUES_ONLY,
    check_config_folder,
    config_folder,
    iterate_texts,
    refuse_targets,
    user_search_path,
)
from proxlearn.config.hydra_errors import translate_hydra_error
from proxlearn.config.launcher_defaults import register_defaults
from proxlearn.errors import InputError
from proxlearn.files.safe_read import check_path


def register_resolvers() -> None:
    """Register the resolver ``proxlearn.reading``; this must be done before a recipe is resolved."""
    OmegaConf.register_new_resolver("proxlearn.reading", resolve_reading, replace=True)


def resolve_reading(loss: str | None) -> str:
    """Return the default of drift and prox_potential: `paper` for the quadratic loss, otherwise `first_variation`."""
    return "paper" if loss == "quadratic" else "first_variation"


def check_folder_settings(composed: DictConfig, is_sweep: bool) -> None:
    """Raise InputError if a setting of Hydra's output folders has no effect or is not allowed.

    A single run ignores the settings of hydra.sweep, and a sweep ignores those of hydra.run. A subfolder for Hydra's
    files in the run folder is not allowed.
    """
    if composed.hydra.output_subdir is not None:
        problem = "hydra.output_subdir is not allowed because Hydra would write its own files into the run folder"
        raise InputError(problem, "leave it out (the config of the run is stored in config.yaml)")
    ignored, effective = ("hydra.run", "hydra.sweep.dir") if is_sweep else ("hydra.sweep", "hydra.run.dir")
    overrides: Any = OmegaConf.to_container(composed.hydra.overrides.hydra, resolve=False)
    for override in overrides:
        key = str(override).lstrip("+~").partition("=")[0]
        if key == ignored or key.startswith(f"{ignored}."):
            mode = "a sweep (-m)" if is_sweep else "a single run"
            raise InputError(f"{key} has no effect on {mode}", f"use {effective}=... instead")


CONFIG_NAME = "train"
"""Name of the primary config, unless --config-name selects another one."""
VERSION_BASE = "1.3"
"""The version of Hydra whose defaults apply."""
PLUGINS = {
    "launcher": re.compile(r"(hydra\._internal\.core_plugins|hydra_plugins)(\.[a-z_]\w*)+\.[A-Z]\w*Launcher"),
    "sweeper": re.compile(r"hydra\._internal\.core_plugins\.basic_sweeper\.BasicSweeper"),
}
"""Patterns of the classes that a config may name: the installed launchers and the sweeper of Hydra."""
SILENT_LOGGING = (
    {"version": 1, "root": None, "disable_existing_loggers": False},
    {"version": 1, "root": {"level": "ERROR"}, "disable_existing_loggers": True},
)
"""Hydra's logging options `none` and `disabled`; the other options import classes. The log of a run is train.log."""
MAX_COPIES = 10**6
"""Maximum number of copies that nested interpolations may make of one string."""


def parse(args: list[str]) -> argparse.Namespace:
    """Parse the arguments of `proxlearn train`; raise InputError for flags and overrides that are not allowed."""
    parsed = parse_arguments(hydra_arguments(args))
    if parsed.experimental_rerun is not None:
        raise InputError(
            "--experimental-rerun is not allowed because it loads a pickle, which can contain code",
            "use `proxlearn resume FOLDER` instead",
        )
    if parsed.config_path is not None:
        problem = "--config-path is not allowed because it hides proxlearn's own configs"
        raise InputError(problem, "add your configs with --config-dir")
    if any("pkg://" in override for override in parsed.overrides):
        problem = "a pkg:// search path is not allowed because it imports a package"
        raise InputError(problem, "use --config-dir FOLDER instead")
    if any(override.lstrip("+").startswith("hydra.searchpath") for override in parsed.overrides):
        problem = "hydra.searchpath is not allowed because it adds configs that are not checked"
        raise InputError(problem, "use --config-dir FOLDER instead")
    if parsed.config_dir is not None:
        check_config_folder(parsed.config_dir)
    return parsed


def compose(parsed: argparse.Namespace) -> DictConfig:
    """Compose and check the config of a command line, including the settings of Hydra."""
    return compose_with_loader(parsed)[0]


def compose_with_loader(parsed: argparse.Namespace) -> tuple[DictConfig, ConfigLoader]:
    """Return the checked config of a command line, and the loader that composes the jobs of a sweep from it."""
    register_defaults()
    register_resolvers()
    try:
        with (
            user_search_path(parsed.config_dir),
            initialize_config_dir(str(config_folder()), job_name="proxlearn", version_base=VERSION_BASE),
        ):
            # hydra.compose calls the same method, but cannot compose a sweep.
            loader = GlobalHydra.instance().config_loader()
            composed = loader.load_configuration(
                parsed.config_name or CONFIG_NAME,
                list(parsed.overrides),
                run_mode=RunMode.MULTIRUN if parsed.multirun else RunMode.RUN,
                from_shell=False,
            )
            _check_interpolations(composed)
            refuse_code(composed)
            _check_folders(composed)
            return composed, loader
    except Exception as error:
        # Some overrides, such as `dataset=null`, make Hydra raise errors of many types; all of them are input errors.
        raise translate_hydra_error(error) from error


def refuse_code(composed: DictConfig) -> None:
    """Raise InputError if a config makes Hydra import or call code, or set environment variables."""
    refuse_targets(OmegaConf.to_container(own_part(composed)), "")
    hydra: Any = OmegaConf.to_container(composed.hydra)
    if hydra["callbacks"]:
        raise InputError("hydra.callbacks is not allowed because it imports and calls code", VALUES_ONLY)
    for logging in ("job_logging", "hydra_logging"):
        if hydra[logging] not in SILENT_LOGGING:
            raise InputError(
                f"hydra.{logging} is not allowed because it imports code", "leave it out (the log is train.log)"
            )
    if hydra["job"]["env_set"]:
        problem = "hydra.job.env_set is not allowed because it changes environment variables"
        raise InputError(problem, "set the variables in your shell instead")
    if hydra["job"]["chdir"]:
        raise InputError("hydra.job.chdir is not allowed because it changes the working directory", "leave it out")
    for name, allowed_class in PLUGINS.items():
        plugin: Any = OmegaConf.to_container(composed.hydra[name], resolve=True)
        if not isinstance(plugin, dict) or not allowed_class.fullmatch(str(plugin.pop("_target_", ""))):
            options = "joblib|submitit_local|submitit_slurm|ray, or leave it out" if name == "launcher" else "basic"
            raise InputError(f"the selected hydra/{name} is not supported", f"choose hydra/{name}={options}")
        refuse_targets(plugin, f"hydra.{name}.")
        if any(str(key).lstrip("+~").startswith("hydra") for key in plugin.get("params") or ()):
            raise InputError("hydra.sweeper.params cannot sweep over Hydra's own settings", "remove these settings")


def own_part(composed: DictConfig) -> DictConfig:
    """Return a composed config without the key ``hydra``, which contains the settings of Hydra."""
    own: DictConfig = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    return own


def _check_interpolations(composed: DictConfig) -> None:
    """Raise InputError if nested interpolations copy strings so often that resolving them would take too long."""
    copies = 1
    for text in iterate_texts(OmegaConf.to_container(composed, resolve=False)):
        copies *= max(1, text.count("${"))
    if copies > MAX_COPIES:
        raise InputError("the config has too many interpolations ${...}", "write the values directly")


def _check_folders(composed: DictConfig) -> None:
    """Raise InputError if an output folder is not a local path or starts with an unexpanded `~`."""
    hydra: Any = OmegaConf.to_container(composed.hydra, resolve=False)
    for name in ("run", "sweep"):
        folder = hydra[name]["dir"] if isinstance(hydra[name], dict) else None
        if not isinstance(folder, str):
            continue
        check_path(f"hydra.{name}.dir", folder)
        if folder.startswith("~"):
            # `~` is expanded only on the command line, and only if the user exists.
            remedy = "write ${oc.env:HOME}/..., or ./~... for a folder whose name starts with `~`"
            problem = f"hydra.{name}.dir={folder:.200}: `~` is not expanded for an unknown user or in a config file"
            raise InputError(problem, remedy)
