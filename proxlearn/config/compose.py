"""What a command line asks of Hydra, composed and looked at before Hydra itself may act on it.

A config holds values, never code. Hydra can be told by a config to import and call things (`_target_`, callbacks,
logging handlers, pickled reruns, packages as search paths); none of that has a use here, so all of it is refused.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from proxlearn.config import schema
from proxlearn.config.arguments import TABLE_SUFFIXES, TEXT_KEYS, hydra_arguments, parse_arguments, table_remedy
from proxlearn.config.config_folder import config_path
from proxlearn.config.launcher_defaults import LAUNCHERS, register_defaults
from proxlearn.config.quoting import override_word
from proxlearn.config.user_configs import VALUES_ONLY, check_config_folder, refuse_targets, texts_in
from proxlearn.errors import InputError, ProxlearnError, did_you_mean
from proxlearn.files.user_paths import check_path

PLUGINS = {
    "launcher": re.compile(r"(hydra\._internal\.core_plugins|hydra_plugins)(\.[a-z_]\w*)+\.[A-Z]\w*Launcher"),
    "sweeper": re.compile(r"hydra\._internal\.core_plugins\.basic_sweeper\.BasicSweeper"),
}
"""What may be told to run jobs, and to list them: launchers come as plugins, the list is Hydra's grid."""
SILENT = (
    {"version": 1, "root": None, "disable_existing_loggers": False},
    {"version": 1, "root": {"level": "ERROR"}, "disable_existing_loggers": True},
)
"""Hydra's `none` and `disabled` logging: others name classes to import. A run's own log is train.log."""
MOST_COPIES = 10**6
"""Bounds how often a text can be repeated by interpolations of interpolations."""


def parse(args: list[str]) -> argparse.Namespace:
    """Hydra's flags, without those that would load code."""
    parsed = parse_arguments(hydra_arguments(args))
    if parsed.experimental_rerun is not None:
        raise InputError("--experimental-rerun loads a pickle, which can hold code", "use `proxlearn resume FOLDER`")
    if parsed.config_path is not None:
        raise InputError("--config-path would hide proxlearn's own configs", "add yours with --config-dir")
    if any("pkg://" in override for override in parsed.overrides):
        raise InputError("a pkg:// search path imports a package", "use --config-dir FOLDER")
    if any(override.lstrip("+").startswith("hydra.searchpath") for override in parsed.overrides):
        raise InputError("hydra.searchpath adds configs that are not checked", "use --config-dir FOLDER")
    if parsed.config_dir is not None:
        check_config_folder(parsed.config_dir)
    return parsed


def compose(parsed: argparse.Namespace) -> DictConfig:
    """The config, with Hydra's own part, as Hydra will compose it."""
    return compose_with_loader(parsed)[0]


def compose_with_loader(parsed: argparse.Namespace) -> tuple[DictConfig, ConfigLoader]:
    """The same, and what composes the jobs of a sweep beside it."""
    register_defaults()
    try:
        search_path = create_config_search_path(config_path())
        if parsed.config_dir is not None:
            folder = Path(parsed.config_dir).absolute()
            search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
        hydra = Hydra.create_main_hydra2("proxlearn", search_path)
        composed = hydra.compose_config(
            parsed.config_name or "train",
            list(parsed.overrides),
            run_mode=RunMode.MULTIRUN if parsed.multirun else RunMode.RUN,
            from_shell=False,
        )
        _check_interpolations(composed)
        refuse_code(composed)
        _check_folders(composed)
        return composed, hydra.config_loader
    except Exception as error:
        # Hydra itself stumbles over some overrides (`dataset=null`), in many ways: they are the user's all the same.
        raise translate_hydra_error(error) from error
    finally:
        GlobalHydra.instance().clear()


def refuse_code(composed: DictConfig) -> None:
    """Refuse a config that tells Hydra to import or call something, or to set what other programs run by."""
    ours = OmegaConf.to_container(OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"]))
    refuse_targets(ours, "")
    hydra: Any = OmegaConf.to_container(composed.hydra)
    if hydra["callbacks"]:
        raise InputError("hydra.callbacks would be imported and called", VALUES_ONLY)
    for logging in ("job_logging", "hydra_logging"):
        if hydra[logging] not in SILENT:
            raise InputError(f"hydra.{logging} would import handlers", "leave it out: the run's log is train.log")
    if hydra["job"]["env_set"]:
        raise InputError("hydra.job.env_set changes what other programs run by", "set the variables in your shell")
    if hydra["job"]["chdir"]:
        raise InputError("hydra.job.chdir would move relative paths", "leave it out: a run never changes the directory")
    for name, allowed in PLUGINS.items():
        plugin: Any = OmegaConf.to_container(composed.hydra[name], resolve=True)
        if not isinstance(plugin, dict) or not allowed.fullmatch(str(plugin.pop("_target_", ""))):
            known = "joblib|submitit_local|submitit_slurm|ray, or leave it out" if name == "launcher" else "basic"
            raise InputError(f"hydra.{name} is not one that proxlearn can use", f"choose hydra/{name}={known}")
        refuse_targets(plugin, f"hydra.{name}.")
        if any(str(key).lstrip("+~").startswith("hydra") for key in plugin.get("params") or ()):
            raise InputError("hydra.sweeper.params cannot sweep over hydra's own settings", "take them out")


def _check_interpolations(composed: DictConfig) -> None:
    """Refuse texts that refer to each other so often that resolving them would not end."""
    copies = 1
    for text in texts_in(OmegaConf.to_container(composed, resolve=False)):
        copies *= max(1, text.count("${"))
    if copies > MOST_COPIES:
        raise InputError("the config's texts hold too many interpolations ${...}", "write the values themselves")


def _check_folders(composed: DictConfig) -> None:
    """Hydra makes the run's folder from its name as it stands: it must be a path, without a `~`."""
    hydra: Any = OmegaConf.to_container(composed.hydra, resolve=False)
    for name in ("run", "sweep"):
        folder = hydra[name]["dir"] if isinstance(hydra[name], dict) else None
        if not isinstance(folder, str):
            continue
        check_path(f"hydra.{name}.dir", folder)
        if folder.startswith("~"):
            remedy = "write ${oc.env:HOME}/..., or ./~... for a folder of that name"
            raise InputError(f"hydra.{name}.dir={folder:.200}: no such home folder, or it stands in a file", remedy)


def translate_hydra_error(error: BaseException) -> ProxlearnError:
    """Hydra's or OmegaConf's account of a wrong input as one line with the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ProxlearnError):
            return cause
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        if error.missing_cfg_file.startswith("dataset/") and Path(option).suffix.lower() in TABLE_SUFFIXES:
            path = error.missing_cfg_file.removeprefix("dataset/")
            return InputError(f"no dataset `{path}`", table_remedy(path))
        if group == "hydra/launcher" and option in LAUNCHERS:
            return InputError(
                f"{group}={option} is not installed", f"pip install 'proxlearn[{LAUNCHERS[option].extra}]'"
            )
        remedy = did_you_mean(option, error.options)
        others = f" ({group}: {', '.join(sorted(error.options))})" if "did you mean" in remedy else ""
        return InputError(f"no {group} `{option}`", remedy + others)
    if isinstance(error, InterpolationResolutionError) and error.full_key and error.child_node is not None:
        unresolved = str(error.child_node._value())
        problem = f"{error.full_key}={unresolved:.200} refers to something that does not exist"
        if error.full_key not in TEXT_KEYS:
            return InputError(problem, "write the value itself")
        word = override_word(str(error.full_key), unresolved)
        return InputError(problem, f"correct it, or write {word} for the text itself")
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        key = unknown[1].split("@")[0]
        return InputError(f"unknown key `{key}`", schema.suggest_key(key))
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    problem = first.removeprefix("LexerNoViableAltException: ").rstrip(".")
    problem = problem if len(problem) < 300 else problem[:300] + " ..."
    if isinstance(error, OverrideParseException):
        return InputError(f"cannot read the override `{problem}`", "write key=value, quoted where it has signs in it")
    merging = re.match(r"Error merging override (.*)", first)
    if merging:
        reason = str(error.__cause__ or "wrong type").partition("\n")[0]
        key = merging[1].partition("=")[0]
        return InputError(f"cannot set {merging[1]:.200} ({reason:.200})", f"leave {key:.100} out")
    if "Ambiguous value" in text or "requires --multirun" in text:
        return InputError(problem, "add -m to sweep over several values")
    return InputError(problem, "write overrides as key=value; see `proxlearn train --help`")
