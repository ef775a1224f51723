"""``proxlearn train``: Hydra composes, the schema checks, the loop runs, the views draw."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from proxlearn.config.arguments import hydra_arguments
from proxlearn.config.compose import compose_with_loader, parse, translate_hydra_error
from proxlearn.config.config_folder import config_path
from proxlearn.config.folder_settings import check_folder_settings
from proxlearn.errors import InputError, ProxlearnError, continue_command
from proxlearn.files.user_paths import absolute_folder
from proxlearn.loggers.logger import check_logger
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder_checks import check_writable, nearest_existing_folder, remove_if_empty
from proxlearn.run.ownership import refuse_table_inside, require_run_or_empty
from proxlearn.run.run_config import validate_config
from proxlearn.sweeps.plan import SweepPlan, plan_sweep
from proxlearn.terminal.notice import notice
from proxlearn.train_session import run_session


def main(args: list[str]) -> int:
    planned = preflight(args)
    if isinstance(planned, SweepPlan):
        from proxlearn.sweeps.launch import run_sweep

        return run_sweep(planned, shlex.join(["proxlearn", "train", *args]))
    existing = None if planned is None else nearest_existing_folder(planned)
    # Hydra would print its own account of an error and end the process; this makes it raise, and we say it in one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["proxlearn", *hydra_arguments(args)]
    code: int | None = None

    def job(composed: DictConfig) -> None:
        nonlocal code
        code = 1
        folder = absolute_folder(HydraConfig.get().run.dir)
        try:
            code = run(composed, folder, shlex.join(["proxlearn", "train", *args]))
        finally:
            # Hydra makes the folder before anything is known about the run.
            if existing is not None:
                remove_if_empty(folder, existing)

    try:
        hydra.main(config_path=config_path(), config_name="train", version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise translate_hydra_error(error) from error
    except ValueError as error:
        if code is not None:
            raise
        raise translate_hydra_error(error) from error
    return code or 0


def preflight(args: list[str]) -> SweepPlan | Path | None:
    """Compose once before Hydra does anything, and check what is asked for before a folder is made.

    Returns the plan of a sweep, the folder of a run, or None where nothing is to be trained.
    """
    parsed = parse(args)
    if parsed.shell_completion or parsed.hydra_help:
        return None
    composed, loader = compose_with_loader(parsed)
    try:
        several = parsed.multirun or composed.hydra.mode == RunMode.MULTIRUN
        if parsed.help or parsed.info or parsed.cfg:
            return None
        check_folder_settings(composed, several)
        if several:
            return plan_sweep(composed, loader)
        config = validate_config(composed)
        folder = composed.hydra.run.dir
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, AttributeError) as error:
        raise translate_hydra_error(error) from error
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
        # Whether that cloud fits the data is known only with the data: worth the import of torch.
        from proxlearn.run.experiment import build_experiment, first_checkpoint

        first_checkpoint(build_experiment(config))
    return path


def run(composed: DictConfig, folder: Path, command: str) -> int:
    """One job, in the folder Hydra made for it; returns its exit code."""
    try:
        config = validate_config(composed)
    except ProxlearnError as error:
        notice(str(error))
        return error.exit_code
    return run_session(config, folder, command, continue_command(config.overwrite))
