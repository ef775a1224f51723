"""What a command line asks of Hydra, composed and looked at before Hydra itself may act on it.

A config holds values, never code. Hydra can be told by a config to import and call things (`_target_`, callbacks,
logging handlers, pickled reruns, packages as search paths); none of that has a use here, so all of it is refused.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from proxlearn import schema
from proxlearn.commands.launchers import KNOWN, register_defaults
from proxlearn.errors import InputError, ProxlearnError, did_you_mean

PACKAGE = "proxlearn.configs"
GROUPS = ("dataset", "device", "logger", "recipe", "experiment")
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
VALUES_ONLY = "configs hold values, not code: take it out"


def config_path() -> str:
    """The configs inside the installed package, or beside it in a bare checkout."""
    if importlib.util.find_spec(PACKAGE) is not None:
        return f"pkg://{PACKAGE}"
    return str(Path(__file__).resolve().parents[2] / "configs")


def parse(args: list[str]) -> argparse.Namespace:
    """Hydra's flags, without those that would load code."""
    parsed: argparse.Namespace = get_args_parser().parse_args(args)
    if parsed.experimental_rerun is not None:
        raise InputError("--experimental-rerun loads a pickle, which can hold code", "use `proxlearn resume FOLDER`")
    if parsed.config_path is not None:
        raise InputError("--config-path would hide proxlearn's own configs", "add yours with --config-dir")
    if any("pkg://" in override for override in parsed.overrides):
        raise InputError("a pkg:// search path imports a package", "use --config-dir FOLDER")
    if parsed.config_dir is not None:
        _refuse_code_in_files(Path(parsed.config_dir))
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
        refuse_code(composed)
        return composed, hydra.config_loader
    except Exception as error:
        # Hydra itself stumbles over some overrides (`dataset=null`), in many ways: they are the user's all the same.
        raise translated(error) from error
    finally:
        GlobalHydra.instance().clear()


def refuse_code(composed: DictConfig) -> None:
    """Refuse a config that tells Hydra to import or call something, or to set what other programs run by."""
    ours = OmegaConf.to_container(OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"]))
    _refuse_targets(ours, "")
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
        _refuse_targets(plugin, f"hydra.{name}.")
        if any(str(key).lstrip("+~").startswith("hydra") for key in plugin.get("params") or ()):
            raise InputError("hydra.sweeper.params cannot sweep over hydra's own settings", "take them out")


def translated(error: BaseException) -> ProxlearnError:
    """Hydra's or OmegaConf's account of a wrong input as one line with the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ProxlearnError):
            return cause
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        if group == "hydra/launcher" and option in KNOWN:
            return InputError(f"{group}={option} is not installed", f"pip install 'proxlearn[{KNOWN[option].extra}]'")
        remedy = did_you_mean(option, error.options)
        return InputError(f"no {group} `{option}`", f"{remedy} ({group}: {', '.join(sorted(error.options))})")
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        key = unknown[1].split("@")[0]
        known = set(schema.TrainConfig.__dataclass_fields__) - {"init_sha256"} | {"fail_fast"} | set(GROUPS)
        known |= {f"dataset.{field}" for field in schema.DatasetConfig.__dataclass_fields__}
        known |= {f"device.{field}" for field in schema.DeviceConfig.__dataclass_fields__}
        known |= {f"logger.{field}" for field in schema.LoggerConfig.__dataclass_fields__}
        return InputError(f"unknown key `{key}`", did_you_mean(key, known))
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    problem = first.removeprefix("LexerNoViableAltException: ").rstrip(".")
    problem = problem if len(problem) < 300 else problem[:300] + " ..."
    if isinstance(error, OverrideParseException):
        return InputError(f"cannot read the override `{problem}`", "write key=value, quoted where it has signs in it")
    if "Ambiguous value" in text or "requires --multirun" in text:
        return InputError(problem, "add -m to sweep over several values")
    return InputError(problem, "write overrides as key=value; see `proxlearn train --help`")


def _refuse_code_in_files(folder: Path) -> None:
    """Look through a user's configs before Hydra does: the first one may already name packages to import."""
    for path in (path for pattern in ("*.yaml", "*.yml") for path in folder.rglob(pattern)):
        try:
            # A header of Hydra's is a comment to YAML, and interpolations are texts.
            values = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            first = str(error).partition("\n")[0]
            raise InputError(f"{path} cannot be read as YAML: {first}", "correct it, or take it out") from error
        _refuse_targets(values, f"{path}: ")
        if any("pkg://" in text for text in _texts(values)):
            raise InputError(f"{path}: a pkg:// search path imports a package", VALUES_ONLY)


def _refuse_targets(node: Any, where: str) -> None:
    if any(text == "_target_" for text in _texts(node)):
        raise InputError(f"{where}_target_ would be imported and called", VALUES_ONLY)


def _texts(node: Any) -> Iterator[str]:
    """Every text in a plain structure, keys included."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)
