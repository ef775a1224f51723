"""Train the runs of the paper's experiments as jobs, with one process per run or per batch of quick runs.

A run that is finished, in the archive or in its folder, is skipped. A partial run in a folder is continued, and any
other run starts from its first step. Finished runs are packed into the archive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from proxlearn.config.compose import compose, parse
from proxlearn.config.run_name import trajectory
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError, ProxlearnError, StoppedBySignal
from proxlearn.files.safe_read import AbsentFile, read_yaml
from proxlearn.jobs.job import Job, JobStopped
from proxlearn.jobs.launchers import LocalPool
from proxlearn.jobs.runner import run_jobs
from proxlearn.paper.archive import Archive
from proxlearn.paper.archive_packing import pack_runs
from proxlearn.paper.run_plan import PLAN, RUNS_FOLDER, PlanEntry, PlannedRun
from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.run.config_validation import validate_config
from proxlearn.run.lock import FolderLock
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.train import train
from proxlearn.terminal.streams import notice

QUICK_SHARE, QUICK_STEPS, QUICK_ROWS = 100, 100, 8
"""For --quick: divisor of the number of steps, maximum number of steps, and approximate number of logged rows."""
RECORDS_FOLDER = ".proxlearn-jobs"
PRELOAD = ("proxlearn.paper.training_runs", "proxlearn.core.fused.fused_step")


def make_runs(entries: Iterable[PlanEntry], archive: Archive, quick: bool, parallel: int = 1) -> int:
    """Train the missing runs, pack the finished runs, and return an exit code.

    A run that fails does not stop the others.
    """
    runs = [run for entry in entries for run in entry.runs(archive.root, quick)]
    code, missing = 0, []
    for run in runs:
        try:
            if not is_finished(run, archive):
                missing.append(run)
        except InputError as error:
            notice(str(error))
            code = 1
    notice(f"runs: {len(runs)}, not finished: {len(missing)}")
    first = starting_runs(missing, archive.root, quick)
    folder = archive.root / RUNS_FOLDER
    with ExitStack() as held:
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(FolderLock(folder))
        for stage in (first, [run for run in missing if run not in first]):
            code = max(code, _run_stage(stage, folder / RECORDS_FOLDER, quick, parallel)) if code <= 128 else code
    pack_runs(archive, [*runs, *first])
    return code


def _run_stage(runs: Iterable[PlannedRun], records: Path, quick: bool, parallel: int) -> int:
    """Train runs that do not depend on each other, and return an exit code."""
    prepared, code = [], 0
    for run in runs:
        try:
            prepared.append((run, planned_config(run)))
        except InputError as error:
            notice(f"{run.folder}: {error}")
            code = 1
    if not prepared:
        return code
    jobs = [_batch_job(number, prepared[number::parallel]) for number in range(min(parallel, len(prepared)))]
    if not quick:
        jobs = [_run_job(run, config) for run, config in prepared]
    outcome = run_jobs(jobs, records, LocalPool(parallel), preload=PRELOAD, caption="runs")
    if outcome.signal is not None:
        notice("stopped; run the same command again to continue")
    return outcome.exit_code or code


def _run_job(run: PlannedRun, config: TrainConfig) -> Job:
    """Return the job that trains one run."""
    args = (config, run.folder, run.command)
    return Job(run.name.replace("/", "_"), run.name, train_run, args, run_folder=run.folder)


def _batch_job(number: int, batch: Sequence[tuple[PlannedRun, TrainConfig]]) -> Job:
    """Return a job for several quick runs, each of which takes less time than loading the compiled passes."""
    args = ([(config, run.folder, run.command) for run, config in batch],)
    return Job(f"quick-{number}", f"quick runs: {len(batch)}", train_batch, args)


def train_run(config: TrainConfig, folder: Path, command: str) -> None:
    """Train one run like `proxlearn train`, but without plots; this function runs as a job."""
    outcome = train(config, folder, command)
    if outcome.signal is not None:
        raise JobStopped(f"stopped at step {outcome.step}", outcome.signal)


def train_batch(batch: Sequence[tuple[TrainConfig, Path, str]]) -> None:
    """Train several runs; a failed run does not stop the others, and the first error is raised at the end."""
    errors: list[ProxlearnError] = []
    for config, folder, command in batch:
        try:
            train_run(config, folder, command)
        except StoppedBySignal:
            raise
        except ProxlearnError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def starting_runs(runs: Iterable[PlannedRun], root: Path, quick: bool) -> list[PlannedRun]:
    """Return the runs to be trained first: those from whose clouds ``runs`` start and that have no checkpoint yet."""
    folders = {run.init_from for run in runs if run.init_from is not None}
    missing = [folder for folder in folders if not list_checkpoints(RunFolder(folder).checkpoints)]
    planned = (run for entry in PLAN for run in entry.runs(root, quick))
    return [run for run in planned if run.folder in missing] if missing else []


def is_finished(run: PlannedRun, archive: Archive) -> bool:
    """Return whether the archive or the folder contains all steps of a run.

    Raise InputError if the stored settings differ from the planned ones.
    """
    # The initial cloud of the run is left out, because only training needs it.
    overrides = tuple(override for override in run.overrides if not override.startswith("init_from="))
    config = planned_config(replace(run, overrides=overrides))
    assert config.steps is not None, "the paper's recipe sets every number"
    stored = archive.find(run.experiment, run.name)
    if stored is not None:
        place = f"{archive.root / run.experiment}: {run.name}"
        _refuse_other_settings(stored.packed.config, config, place)
        if stored.status["state"] == "finished" and stored.status["step"] >= config.steps:
            return True
    folder = RunFolder(run.folder)
    try:
        _refuse_other_settings(read_yaml(folder.config), config, str(run.folder))
    except AbsentFile:
        return False
    finished_at = folder.read_previous_session().finished_at
    return finished_at is not None and finished_at >= config.steps


def _refuse_other_settings(stored: Mapping[str, Any], config: TrainConfig, place: str) -> None:
    """Raise InputError if a stored run does not have the planned settings.

    Keys that the stored run lacks are ignored, because they were added later.
    """
    # The settings are converted through JSON, like the stored file, which turns tuples into lists.
    planned = json.loads(json.dumps(trajectory(config)))
    planned.pop("init_sha256", None)
    different = [key for key in planned if key in stored and _differ(stored[key], planned[key])]
    if different:
        problem = f"{place} contains a run with other settings ({', '.join(different)})"
        raise InputError(problem, "remove the run, or restore the experiment's settings")


def _differ(stored: Any, planned: Any) -> bool:
    """Return whether two values differ; dictionaries are compared only in the keys that both have."""
    if isinstance(stored, dict) and isinstance(planned, dict):
        return any(_differ(stored[key], planned[key]) for key in planned if key in stored)
    return bool(stored != planned)


@cache
def planned_config(run: PlannedRun) -> TrainConfig:
    """Return the composed and validated config of a run; a quick run has fewer steps."""
    config = validate_config(compose(parse(list(run.overrides))))
    if run.init_from is not None:
        # The path stays as given, because a committed config must not name a folder of this machine.
        config = replace(config, init_from=str(run.init_from))
    if run.quick:
        assert config.steps is not None, "the paper's recipe sets every number"
        steps = min(QUICK_STEPS, -(-config.steps // QUICK_SHARE))
        config = replace(config, steps=steps, log_every=max(1, steps // QUICK_ROWS))
    return config
