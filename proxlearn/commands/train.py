"""``proxlearn train``: compose and validate the config, then train one run or run a sweep."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from proxlearn.config.arguments import hydra_arguments
from proxlearn.config.compose import CONFIG_NAME, VERSION_BASE, check_folder_settings, compose_with_loader, parse
from proxlearn.config.config_folders import config_folder, register_search_path
from proxlearn.config.hydra_errors import translate_hydra_error
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError, continue_command
from proxlearn.files.safe_read import absolute_folder
from proxlearn.loggers.logger import check_logger
from proxlearn.run.config_validation import validate_config, validated_run_name
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder_recognition import (
    check_writable,
    nearest_existing_folder,
    refuse_table_inside,
    remove_if_empty,
    require_run_or_empty,
)
from proxlearn.sweeps.sweep import SweepPlan, plan_sweep
from proxlearn.terminal.streams import notice
from proxlearn.train_and_draw import run_session

if TYPE_CHECKING:  # torch takes seconds to import, and an ordinary run does not need ranks.
    from proxlearn.distributed.world import World


@dataclass(frozen=True)
class RunPlan:
    """A single run that has been checked but not started."""

    config: TrainConfig
    folder: Path


def main(args: list[str], world: World | None = None) -> int:
    """Train a run or a sweep, and return the exit code.

    If several ranks train a run together, each of them calls this function with its ``world``.
    """
    plan = preflight(args) if world is None else preflight_of_ranks(args, world)
    command = shlex.join(["proxlearn", "train", *args])
    if plan is None:
        if world is None or world.rank == 0:
            print_with_hydra(args)
        return 0
    if isinstance(plan, SweepPlan):
        from proxlearn.sweeps.sweep import run_sweep

        return run_sweep(plan, command)
    existing = nearest_existing_folder(plan.folder)
    try:
        code = run_session(plan.config, plan.folder, command, continue_command(plan.config.overwrite), world=world)
        is_first = world is None or world.rank == 0
        if code == 0 and is_first and plan.config.dataset.name == "csv" and plan.config.recipe == "paper":
            notice("this run used the paper's settings; recipe=tuned selects settings for your table, as `fit` does")
        return code
    finally:
        # A run that fails while its data are read leaves an empty folder.
        if world is None or world.rank == 0:
            remove_if_empty(plan.folder, existing)


def preflight_of_ranks(args: list[str], world: World) -> RunPlan | None:
    """Return the plan of the run, or None if the command only prints information.

    Raise an error on all ranks if their commands differ or are not valid.
    """
    from proxlearn.distributed.agreement import agreed, check_same_config, check_same_program

    def work() -> RunPlan | None:
        plan = preflight(args)
        if isinstance(plan, SweepPlan):
            raise InputError("a sweep cannot run on several ranks", "start the run without torchrun or srun")
        if plan is not None and plan.config.kernel != "auto" and plan.config.weights == "proximal":
            raise InputError(f"kernel={plan.config.kernel} does not support several ranks", "use kernel=auto")
        return plan

    check_same_program(world)
    plan = agreed(world, work)
    if plan is not None:
        check_same_config(world, plan.config, plan.folder)
    return plan


def preflight(args: list[str]) -> SweepPlan | RunPlan | None:
    """Compose and check a command line, and return the plan of its run or sweep; no folder is created.

    Return None if the command line only asks for help, tab completion or a printed config.
    """
    parsed = parse(args)
    if parsed.shell_completion or parsed.hydra_help:
        return None
    composed, loader = compose_with_loader(parsed)
    if parsed.help or parsed.info or parsed.cfg:
        return None
    try:
        is_sweep = parsed.multirun or composed.hydra.mode == RunMode.MULTIRUN
        check_folder_settings(composed, is_sweep)
        if is_sweep:
            return plan_sweep(composed, loader)
        config = validate_config(composed)
        with validated_run_name(config):
            folder = composed.hydra.run.dir
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, AttributeError) as error:
        raise translate_hydra_error(error) from error
    return check_run(config, folder)


def check_run(config: TrainConfig, folder: object) -> RunPlan:
    """Return the plan of a run; raise InputError if the run cannot start on this machine or use its folder."""
    if not isinstance(folder, str) or not folder:
        raise InputError(f"hydra.run.dir must name a folder, got {folder!r}", "leave it out, or try hydra.run.dir=mine")
    check_memory(config)
    resolve_device(config.device.device)
    check_logger(config.logger)
    path = absolute_folder(folder)
    check_writable(path)
    require_run_or_empty(path)
    refuse_table_inside(config.dataset.path, path)
    if config.init_from is not None:
        # Whether the initial cloud fits this run depends on the data, so this check loads them and imports torch.
        from proxlearn.run.experiment import build_experiment, first_checkpoint

        first_checkpoint(build_experiment(config))
    return RunPlan(config, path)


def print_with_hydra(args: list[str]) -> None:
    """Let Hydra handle --help, --hydra-help, --cfg, --info and tab completion."""
    register_search_path()
    # Without this variable, Hydra prints its own error message and ends the process.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["proxlearn", *hydra_arguments(args)]
    try:
        hydra.main(config_path=str(config_folder()), config_name=CONFIG_NAME, version_base=VERSION_BASE)(
            _refuse_to_run
        )()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise translate_hydra_error(error) from error


def _refuse_to_run(composed: DictConfig) -> None:
    raise AssertionError("Hydra must only print here, and must not start a run")
