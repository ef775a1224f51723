"""``proxlearn resume <run folder>``: go on with a run, from its folder alone."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

from proxlearn.config.schema import LoggerConfig
from proxlearn.errors import InputError
from proxlearn.files.user_paths import absolute_folder
from proxlearn.loggers.logger import check_logger
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder_checks import check_writable
from proxlearn.run.overwrite import recover_locked
from proxlearn.run.run_folder import RunFolder
from proxlearn.train_session import run_session
from proxlearn.validators import integer, parse_number


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn resume",
        description="Go on with a run from its newest valid checkpoint; a finished one shows its result.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="a folder that `proxlearn train` made")
    parser.add_argument(
        "--steps",
        help="the number of recursions at which the run ends: more than before extend it; fewer, where it has not got "
        "that far yet, end it earlier, and a later --steps with the old number gives what the run would have given",
    )
    parsed = parser.parse_args(args)
    folder: Path = absolute_folder(parsed.folder)
    if not folder.is_dir():
        raise InputError(f"no folder {parsed.folder}", "name a folder that `proxlearn train` made")
    RunFolder(folder).refuse_links()
    recover_locked(folder)
    # A path in a file must not lead out of the folder: the cloud that an init_from run began with is in its own.
    config = replace(RunFolder(folder).read_config(), init_from=None)
    if parsed.steps is not None:
        config = replace(config, steps=integer(at_least=0, example=1000)("--steps", parse_number(parsed.steps)))
    check_memory(config)
    resolve_device(config.device.device)
    check_logger(config.logger)
    check_writable(folder)
    refuse_elsewhere(config.logger)
    again = shlex.join(["proxlearn", "resume", *args])
    return run_session(config, folder, again, f"`{again}`")


def refuse_elsewhere(logger: LoggerConfig) -> None:
    """A folder's word leads to no server, which might get your password, and to nothing but what is below here."""
    uri = logger.uri
    if uri is not None and (":" in uri or Path(uri).is_absolute() or ".." in Path(uri).parts):
        problem = f"the run logs to {uri!r:.100}, and a folder's word is not enough to go there"
        raise InputError(problem, "give its `proxlearn train ... logger=mlflow logger.uri=...` command again")
