"""``proxlearn train``: Hydra composes, the schema checks, the loop runs, the views draw."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from proxlearn import schema
from proxlearn.commands.compose import compose, config_path, parse, translated
from proxlearn.commands.session import run_session
from proxlearn.errors import InputError, ProxlearnError
from proxlearn.run import sealed
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder import check_writable, remove_if_empty


def checked_config(composed: DictConfig) -> schema.TrainConfig:
    """The composed config as the one dataclass that goes further in."""
    ours = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    try:
        values: Any = OmegaConf.to_container(ours, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
        raise translated(error) from error
    if isinstance(values.get("dataset"), dict):
        # The dataset's paper settings have done their work: the recipe took its defaults from them.
        values["dataset"].pop("paper", None)
    source = values.get("init_from")
    if isinstance(source, str):
        # Not the folder, whose newest cloud changes, but the cloud itself belongs to what determines the run.
        values |= {"init_from": os.path.abspath(source), "init_sha256": newest_cloud(Path(source))}
    else:
        values["init_sha256"] = None
    return schema.build(schema.TrainConfig, values)


def newest_cloud(folder: Path) -> str:
    """The checksum of the newest valid checkpoint in a run folder."""
    try:
        return next(sealed.valid(folder / "checkpoints")).sha256
    except (StopIteration, OSError, ValueError) as error:
        problem = f"init_from={str(folder)!r:.200} holds no valid checkpoint"
        raise InputError(problem, "name a folder that `proxlearn train` made") from error


OmegaConf.register_new_resolver(
    "proxlearn.run_name", lambda *, _root_: schema.run_name(checked_config(_root_)), replace=True
)


def main(args: list[str]) -> int:
    preflight(args)
    # Hydra would print its own account of an error and end the process; this makes it raise, and we say it in one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["proxlearn", *args]
    codes: list[int] = []

    def job(composed: DictConfig) -> None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        if codes and codes[-1] > 128:
            # A signal stops a sweep, not only the job that it met.
            remove_if_empty(folder)
            return
        codes.append(1)
        codes[-1] = run(composed, folder)

    try:
        hydra.main(config_path=config_path(), config_name="train", version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise translated(error) from error
    except ValueError as error:
        if codes:
            raise
        raise translated(error) from error
    return max(codes, default=0)


def preflight(args: list[str]) -> None:
    """Compose once before Hydra does anything; where a single run is asked for, check it before a folder is made."""
    parsed = parse(args)
    if parsed.shell_completion or parsed.hydra_help:
        return
    composed = compose(parsed)
    try:
        several = parsed.multirun or composed.hydra.mode == RunMode.MULTIRUN
        if parsed.help or parsed.info or parsed.cfg or several:
            return
        config = checked_config(composed)
        folder = composed.hydra.run.dir
    except (OmegaConfBaseException, ValueError, TypeError, AttributeError) as error:
        raise translated(error) from error
    if not isinstance(folder, str) or not folder:
        raise InputError(f"hydra.run.dir must name a folder, got {folder!r}", "leave it out, or try hydra.run.dir=mine")
    check_memory(config)
    resolve_device(config.device.device)
    check_writable(Path(folder).absolute())
    if config.init_from is not None:
        # Whether that cloud fits the data is known only with the data: worth the import of torch.
        from proxlearn.run.experiment import build_experiment, first_checkpoint

        first_checkpoint(build_experiment(config))


def run(composed: DictConfig, folder: Path) -> int:
    """One job, in the folder Hydra made for it; returns its exit code."""
    try:
        config = checked_config(composed)
    except ProxlearnError as error:
        remove_if_empty(folder)
        print(f"proxlearn: {error}", file=sys.stderr)
        return error.exit_code
    command = shlex.join(["proxlearn", "train", *sys.argv[1:]])
    return run_session(config, folder, command, "the same command")
