"""Making the runs: each through the ordinary runner, so that a finished one is skipped and a partial one goes on."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import TrainConfig, trajectory
from proxlearn.errors import InputError, ProxlearnError
from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.run.run_config import validate_config
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.training_loop import Outcome, train
from reproduce.plan import QUICK_ROWS, QUICK_SHARE, QUICK_STEPS, Entry, PaperRun


def make(entries: Iterable[Entry], root: Path, quick: bool) -> int:
    """Make what is missing; an exit code. A run that fails, or that another process is at, does not stop the rest."""
    runs = [run for each in entries for run in each.runs(root, quick)]
    code = 0
    for number, run in enumerate(runs, 1):
        try:
            outcome = make_one(run, f"[{number}/{len(runs)}]")
        except ProxlearnError as error:
            say(f"[{number}/{len(runs)}] {run.folder}: {error}")
            code = 1
            continue
        if outcome.signal is not None:
            say(f"stopped in {run.folder} at step {outcome.step}; the same command goes on from there")
            return 128 + outcome.signal
    return code


def make_one(run: PaperRun, where: str) -> Outcome:
    """One run, as `proxlearn train` would make it but without its plots; a sweep's launcher could take this place."""
    words = [*run.overrides, f"hydra.run.dir={run.folder}"]
    config = config_of(run)
    finished = finished_at(run.folder, config)
    assert config.steps is not None, "the paper's recipe leaves no number open"
    if finished is not None and finished >= config.steps:
        return Outcome(run.folder, "finished", finished, already_finished=True)
    say(f"{where} {run.folder}: {config.steps} steps")
    outcome = train(config, run.folder, shlex.join(["proxlearn", "train", *words]))
    if not config.films:
        # A run that was interrupted keeps a second cloud; the newest is all that goes on needs.
        for _, path in list_checkpoints(run.folder / "checkpoints")[1:]:
            path.unlink()
    return outcome


def finished_at(folder: Path, config: TrainConfig) -> int | None:
    """The last step of a finished run, told by its folder alone: no data, and no key that the config gained since."""
    if not (folder / "config.yaml").is_file():
        return None
    before, wanted = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")), trajectory(config)
    # Through JSON, as the file went: a tuple comes back as a list.
    wanted = json.loads(json.dumps(wanted))
    other = [key for key in wanted if key in before and _differ(before[key], wanted[key])]
    if other:
        problem = f"{folder} holds a run with another {', '.join(other)}"
        raise InputError(problem, "remove it, or put the experiment back as it was")
    return RunFolder(folder).read_earlier().finished_at


def _differ(before: Any, wanted: Any) -> bool:
    """Whether two settings differ in what both of them have."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        return any(_differ(before[key], wanted[key]) for key in wanted if key in before)
    return bool(before != wanted)


def config_of(run: PaperRun) -> TrainConfig:
    config = validate_config(compose(parse(list(run.overrides))))
    if config.init_from is not None:
        # As it was given: a committed config must not name a folder of this machine.
        (source,) = (word.partition("=")[2] for word in run.overrides if word.startswith("init_from="))
        config = replace(config, init_from=source)
    if run.quick:
        assert config.steps is not None, "the paper's recipe leaves no number open"
        steps = min(QUICK_STEPS, -(-config.steps // QUICK_SHARE))
        config = replace(config, steps=steps, log_every=max(1, steps // QUICK_ROWS))
    return config


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
