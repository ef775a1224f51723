"""``proxlearn resume <run folder>``: go on with a run, from its folder alone."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from proxlearn.checks import integer
from proxlearn.commands.session import run_session
from proxlearn.errors import InputError
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder import RunFolder, check_writable


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn resume",
        description="Go on with a run from its newest valid checkpoint; a finished one shows its result.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="a folder that `proxlearn train` made")
    parser.add_argument("--steps", help="extend the run to so many recursions")
    parsed = parser.parse_args(args)
    folder: Path = parsed.folder.absolute()
    if not folder.is_dir():
        raise InputError(f"no folder {parsed.folder}", "name a folder that `proxlearn train` made")
    RunFolder(folder).refuse_links()
    # A path in a file must not lead out of the folder: the cloud that an init_from run began with is in its own.
    config = replace(RunFolder(folder).read_config(), init_from=None)
    if parsed.steps is not None:
        config = replace(config, steps=integer(at_least=0, example=1000)("--steps", _number(parsed.steps)))
    check_memory(config)
    resolve_device(config.device.device)
    check_writable(folder)
    again = shlex.join(["proxlearn", "resume", *args])
    return run_session(config, folder, again, f"`{again}`")


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
