"""``proxlearn train``: Hydra composes, the schema checks, the loop runs, the views draw."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from proxlearn import schema
from proxlearn.errors import InputError, ProxlearnError, did_you_mean
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder import check_writable, remove_if_empty

PACKAGE = "proxlearn.configs"
GROUPS = ("dataset", "device", "logger", "recipe")


def config_path() -> str:
    """The configs inside the installed package, or beside it in a bare checkout."""
    if importlib.util.find_spec(PACKAGE) is not None:
        return f"pkg://{PACKAGE}"
    return str(Path(__file__).resolve().parents[2] / "configs")


def checked_config(composed: DictConfig) -> schema.TrainConfig:
    """The composed config as the one dataclass that goes further in."""
    ours = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    values: Any = OmegaConf.to_container(ours, resolve=True, throw_on_missing=True)
    if isinstance(values.get("dataset"), dict):
        # The dataset's paper settings have done their work: the recipe took its defaults from them.
        values["dataset"].pop("paper", None)
    return schema.build(schema.TrainConfig, values)


OmegaConf.register_new_resolver(
    "proxlearn.run_name", lambda *, _root_: schema.run_name(checked_config(_root_)), replace=True
)


def main(args: list[str]) -> int:
    # Hydra would print its own account of an error and end the process; this makes it raise, and we say it in one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["proxlearn", *args]
    exit_codes: list[int] = []

    def job(composed: DictConfig) -> None:
        exit_codes.append(run(composed))

    try:
        preflight(args)
        hydra.main(config_path=config_path(), config_name="train", version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise translated(error) from error
    return max(exit_codes, default=0)


def compose(overrides: list[str], config_name: str | None = None) -> DictConfig:
    """The composed config, Hydra's own part included, without running anything."""
    path = config_path()
    start = hydra.initialize_config_module if path.startswith("pkg://") else hydra.initialize_config_dir
    with start(path.removeprefix("pkg://"), version_base="1.3"):
        try:
            return hydra.compose(config_name or "train", overrides, return_hydra_config=True)
        except (ValueError, TypeError, AttributeError) as error:
            # Hydra itself stumbles over some overrides (`dataset=null`): they are the user's all the same.
            raise translated(error) from error


def preflight(args: list[str]) -> None:
    """Compose and check once before Hydra creates anything; only where a single run is asked for."""
    parsed = get_args_parser().parse_args(args)
    if parsed.help or parsed.hydra_help or parsed.info or parsed.cfg or parsed.shell_completion or parsed.multirun:
        return
    overrides = list(parsed.overrides)
    if parsed.config_dir:
        overrides.append(f"hydra.searchpath=[file://{Path(parsed.config_dir).resolve()}]")
    composed = compose(overrides, parsed.config_name)
    config = checked_config(composed)
    check_memory(config)
    resolve_device(config.device.device)
    check_writable(Path(composed.hydra.run.dir).absolute())


def run(composed: DictConfig) -> int:
    """One job, in the folder Hydra made for it; returns its exit code."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        config = checked_config(composed)
        say(f"proxlearn train: {config.dataset.name}, N={config.N}, beta={config.beta:g}, epsilon={config.epsilon:g}, ")
        say(f"{config.steps} steps -> {shown(folder)}\n")
        # torch, pandas and matplotlib take seconds to import: not before the input is known to be good.
        from proxlearn.run.loop import train
        from proxlearn.views.render import render, summary

        outcome = train(config, folder, command=shlex.join(["proxlearn", "train", *sys.argv[1:]]))
        if outcome.already_finished:
            say(f"Finished before, with {outcome.step} steps: nothing to do. More steps= would continue it.\n")
        render(folder)
        say(summary(folder))
    except ProxlearnError as error:
        remove_if_empty(folder)
        print(f"proxlearn: {error}", file=sys.stderr)
        return error.exit_code
    if outcome.signal is not None:
        print(f"proxlearn: stopped at step {outcome.step}; the same command goes on from there", file=sys.stderr)
        return 128 + outcome.signal
    return 0


def say(text: str) -> None:
    print(text, end="", flush=True)


def shown(folder: Path) -> str:
    """A folder as the user would type it."""
    return str(folder.relative_to(Path.cwd())) if folder.is_relative_to(Path.cwd()) else str(folder)


def translated(error: Exception) -> ProxlearnError:
    """Hydra's or OmegaConf's account of a wrong input as one line with the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ProxlearnError):
            return cause
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        remedy = did_you_mean(option, error.options)
        return InputError(f"no {group} `{option}`", f"{remedy} ({group}: {', '.join(sorted(error.options))})")
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        key = unknown[1].split("@")[0]
        known = set(schema.TrainConfig.__dataclass_fields__) | set(GROUPS)
        known |= {f"dataset.{field}" for field in schema.DatasetConfig.__dataclass_fields__}
        known |= {f"device.{field}" for field in schema.DeviceConfig.__dataclass_fields__}
        return InputError(f"unknown key `{key}`", did_you_mean(key, known))
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return InputError(first.rstrip("."), "write overrides as key=value; see `proxlearn train --help`")
