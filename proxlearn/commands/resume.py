"""``proxlearn resume RUN_FOLDER``: continue a run, using only its folder."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proxlearn.config.schema import LoggerConfig, TrainConfig
from proxlearn.errors import InputError
from proxlearn.files.safe_read import absolute_folder
from proxlearn.loggers.logger import check_logger
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder_recognition import check_writable
from proxlearn.run.overwrite import recover_locked
from proxlearn.run.run_folder import RunFolder
from proxlearn.train_and_draw import run_session
from proxlearn.validators import integer, parse_number

if TYPE_CHECKING:  # torch takes seconds to import, and an ordinary run does not need ranks.
    from proxlearn.distributed.world import World


def main(args: list[str], world: World | None = None) -> int:
    """Continue a run and return the exit code.

    If several ranks train the run together, each of them calls this function with its ``world``.
    """
    if world is None:
        config, folder = preflight(args)
    else:
        from proxlearn.distributed.agreement import agreed, check_same_config, check_same_program

        check_same_program(world)
        config, folder = agreed(world, lambda: preflight(args))
        check_same_config(world, config, folder)
    command = shlex.join(["proxlearn", "resume", *args])
    return run_session(config, folder, command, f"`{command}`", world=world)


def preflight(args: list[str]) -> tuple[TrainConfig, Path]:
    """Check the command line, and return the config and the folder of the run."""
    parser = argparse.ArgumentParser(
        prog="proxlearn resume",
        description="Continue a run from its newest valid checkpoint. If the run is finished, print its result.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="a run folder created by `proxlearn train`")
    parser.add_argument(
        "--steps",
        help="total number of recursions. A larger number extends the run; a smaller number that the run has not yet "
        "reached ends it earlier. Raising the number again gives the same result as an uninterrupted run",
    )
    parsed, rest = parser.parse_known_args(args)
    refuse_overrides(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    folder: Path = absolute_folder(parsed.folder)
    if not folder.is_dir():
        raise InputError(f"the folder {parsed.folder} does not exist", "give a folder that `proxlearn train` created")
    RunFolder(folder).refuse_links()
    recover_locked(folder)
    # A path in config.yaml must not refer to a place outside the folder. The initial cloud of a run with init_from is
    # stored in the folder.
    config = replace(RunFolder(folder).read_config(), init_from=None)
    if parsed.steps is not None:
        config = replace(config, steps=integer(at_least=0, example=1000)("--steps", parse_number(parsed.steps)))
    check_memory(config)
    resolve_device(config.device.device)
    check_logger(config.logger)
    check_writable(folder)
    refuse_remote_logger(config.logger)
    return config, folder


def refuse_overrides(words: list[str]) -> None:
    """Raise InputError if ``words`` contains an override KEY=VALUE, which only `proxlearn train` accepts."""
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key == "steps" and value:
            raise InputError(f"`proxlearn resume` does not accept `{word}`", f"use --steps {value}")
        if value and not key.startswith("-"):
            problem = f"`proxlearn resume` does not accept `{word}`: only --steps can change a setting of the run"
            raise InputError(problem, f"start a new run with `proxlearn train ... {word}`")


def refuse_remote_logger(logger: LoggerConfig) -> None:
    """Raise InputError if the logger's address is a server or is outside the current folder.

    The config of a run folder may come from an untrusted source, and a server could receive a password.
    """
    uri = logger.uri
    if uri is not None and (":" in uri or Path(uri).is_absolute() or ".." in Path(uri).parts):
        problem = f"config.yaml sets logger.uri={uri!r:.100}, but `proxlearn resume` logs only in the current folder"
        raise InputError(problem, f"repeat the `proxlearn train ... logger={logger.name} logger.uri=...` command")
