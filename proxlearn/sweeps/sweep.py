"""A sweep, ``proxlearn train -m``: its jobs are composed and checked, and unfinished jobs are run."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from proxlearn.config.arguments import count_combinations, expand_grid
from proxlearn.config.compose import refuse_code
from proxlearn.config.hydra_errors import translate_hydra_error
from proxlearn.config.run_name import NOT_TRAJECTORY, digest
from proxlearn.config.schema import DatasetConfig, TrainConfig
from proxlearn.errors import InputError, continue_command
from proxlearn.files.safe_read import absolute_folder, display_path
from proxlearn.jobs.job import Job, JobStopped
from proxlearn.jobs.launcher_setup import runs_here
from proxlearn.jobs.launchers import HydraLauncher
from proxlearn.jobs.records import DONE
from proxlearn.jobs.runner import run_jobs
from proxlearn.loggers.logger import check_logger
from proxlearn.run.config_validation import validate_config, validated_run_name
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.folder_recognition import (
    check_writable,
    refuse_table_inside,
    require_run_or_empty,
    require_sweep_or_empty,
)
from proxlearn.run.overwrite import is_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import SweepFolder, SweepJob
from proxlearn.terminal.streams import notice
from proxlearn.train_and_draw import echo, train_and_draw
from proxlearn.validators import flag

MAX_JOBS = 10_000
NOTICE_JOBS = 50
"""Minimum number of jobs for which a notice says that they are checked; a check takes a tenth of a second per job."""
NOT_NAMED = ("fail_fast", "logger.uri")
"""Keys that, in addition to those of NOT_TRAJECTORY, do not affect the name of the sweep folder."""


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that has been checked but not started."""

    master: DictConfig
    """The config that Hydra composed for the sweep as a whole."""
    loader: ConfigLoader
    folder: SweepFolder
    jobs: list[SweepJob]
    configs: dict[int, TrainConfig]
    """The config per job number, for the jobs that can run."""
    fail_fast: bool

    def missing(self) -> list[int]:
        """Return the numbers of the jobs that the sweep has to run.

        A finished job is run again if it has overwrite=true or if its data file has changed. Invalid jobs and jobs with
        the settings of another job are left out.
        """
        runnable = [job for job in self.jobs if job.number in self.configs and job.same_as is None]
        checksums: dict[str, str | None] = {}
        return [job.number for job in runnable if not self._is_finished(job, checksums)]

    def _is_finished(self, job: SweepJob, checksums: dict[str, str | None]) -> bool:
        config, folder = self.configs[job.number], self.folder.run_folder(job)
        if config.overwrite or folder is None:
            return False
        state = self.folder.state(job)
        if state.state != DONE or state.run is None:
            return False
        # If the data file has changed since then, the job runs again and reports the change.
        return state.run.data_sha256 == data_sha256(config.dataset, checksums)


def plan_sweep(master: DictConfig, loader: ConfigLoader) -> SweepPlan:
    """Check all jobs of a sweep and return its plan; raise InputError if no job is valid."""
    overrides = task_overrides(master, loader)
    swept = [override.get_key_element() for override in overrides if override.is_sweep_override()]
    count = count_combinations(overrides, MAX_JOBS)
    if count > MAX_JOBS:
        raise InputError(f"the sweep has more than {MAX_JOBS} jobs", "choose fewer values")
    if count >= NOTICE_JOBS:
        notice(f"checking {count} jobs ...")
    folder = SweepFolder(sweep_folder(master, overrides, swept))
    require_sweep_or_empty(folder.path)
    jobs: list[SweepJob] = []
    configs: dict[int, TrainConfig] = {}
    for number, words in enumerate(expand_grid(overrides)):
        pairs = (word.partition("=") for word in words)
        values = {key.lstrip("+"): value for key, _, value in pairs if key in swept}
        try:
            config, run_folder = check_job(master, loader, words, number, runs_here(master))
        except InputError as error:
            jobs.append(SweepJob(number, values, error=str(error)))
            continue
        configs[number] = config
        relative_folder = os.path.relpath(run_folder, folder.path)
        jobs.append(SweepJob(number, values, config.steps, relative_folder, settings_sha256=digest(config)))
    fail_fast = flag("fail_fast", master.get("fail_fast", False))
    refuse_shared_folders(jobs, folder)
    errors = [job.error for job in jobs if job.error is not None]
    if errors and (fail_fast or len(errors) == len(jobs)):
        problem, _, remedy = errors[0].rpartition("; ")
        raise InputError(problem, remedy)
    return SweepPlan(master, loader, folder, share_runs(jobs), configs, fail_fast)


def task_overrides(master: DictConfig, loader: ConfigLoader) -> list[Override]:
    """Return the overrides in hydra.sweeper.params and on the command line; the last override of a key is used."""
    params = master.hydra.sweeper.get("params") or {}
    words = [f"{key}={value}" for key, value in params.items()]
    # Interpolations are not resolved, because `split_seed=${seed}` means the seed of each job.
    command_line: Any = OmegaConf.to_container(master.hydra.overrides.task, resolve=False)
    words += [str(word) for word in command_line]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(words)
    return list({override.get_key_element(): override for override in parsed}.values())


def check_job(
    master: DictConfig, loader: ConfigLoader, words: list[str], number: int, here: bool
) -> tuple[TrainConfig, Path]:
    """Compose, validate and check one job; return its config and its run folder."""
    try:
        composed = loader.load_sweep_config(master, words)
        with open_dict(composed):
            composed.hydra.job.id, composed.hydra.job.num = str(number), number
        refuse_code(composed)
        config = validate_config(composed)
        with validated_run_name(config):
            folder = absolute_folder(Path(str(composed.hydra.sweep.dir)) / str(composed.hydra.sweep.subdir))
    except Exception as error:
        # Some values raise errors of many types inside Hydra and OmegaConf; all of them are input errors.
        raise translate_hydra_error(error) from error
    if here:
        check_memory(config)
        resolve_device(config.device.device)
        check_logger(config.logger)
    check_writable(folder)
    require_run_or_empty(folder)
    refuse_table_inside(config.dataset.path, folder)
    # After an interrupted overwrite, the job restores the old run first and then makes this check.
    if not config.overwrite and not is_interrupted(folder):
        RunFolder(folder).check_same_run(config)
    return config, folder


def refuse_shared_folders(jobs: list[SweepJob], sweep: SweepFolder) -> None:
    """Raise InputError if jobs with different settings have the same folder, which can contain only one result."""
    owners: dict[str, SweepJob] = {}
    for job in jobs:
        if (folder := sweep.run_folder(job)) is None:
            continue
        owner = owners.setdefault(os.path.realpath(folder), job)
        if owner.settings_sha256 != job.settings_sha256:
            both = f"jobs {owner.number} ({owner.title}) and {job.number} ({job.title})"
            problem = f"{both} have the same run folder, {folder}"
            raise InputError(problem, "leave out hydra.sweep.subdir, or use hydra.sweep.subdir='${hydra.job.num}'")


def share_runs(jobs: list[SweepJob]) -> list[SweepJob]:
    """Return the jobs with ``same_as`` set, so that only one job per run folder is run.

    This is the job with the most steps; in the other jobs of the folder, ``same_as`` is its number.
    """
    longest: dict[str, SweepJob] = {}
    for job in jobs:
        folder = job.folder
        if folder is not None and (folder not in longest or (job.steps or 0) > (longest[folder].steps or 0)):
            longest[folder] = job
    same_as = {job.number: longest[job.folder].number for job in jobs if job.folder is not None}
    return [
        replace(job, same_as=None if same_as.get(job.number) == job.number else same_as.get(job.number)) for job in jobs
    ]


def sweep_folder(master: DictConfig, overrides: list[Override], swept: list[str]) -> Path:
    """Return the folder of a sweep; its name consists of the swept keys and a hash of the overrides."""
    values = {
        key: str(override.input_line).partition("=")[2]
        for override in overrides
        if (key := override.get_key_element().lstrip("+")) not in (*NOT_TRAJECTORY, *NOT_NAMED)
    }
    config_name = str(master.hydra.job.config_name)
    text = "\n".join([config_name, *(f"{key}={values[key]}" for key in sorted(values))])
    readable = re.sub(r"[^\w.-]", "", "-".join(key.lstrip("+") for key in swept))[:60] or "sweep"
    name = f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return absolute_folder(str(master.hydra.sweep.dir)) / "sweeps" / name


def data_sha256(dataset: DatasetConfig, checksums: dict[str, str | None]) -> str | None:
    """Return the checksum of the data that a run would read now, or None if the data cannot be read.

    ``checksums`` caches the result, so that the data are read once for all jobs.
    """
    from proxlearn.data import registry

    key = repr(dataset)
    if key not in checksums:
        try:
            checksums[key] = registry.load(dataset).sha256
        except InputError:
            checksums[key] = None
    return checksums[key]


PRELOAD = (
    "proxlearn.sweeps.sweep",
    "proxlearn.run.train",
    "proxlearn.views.run.run_views",
    "proxlearn.core.fused.fused_step",
)
"""Modules that are imported once for all jobs, so that a job starts in a fraction of a second."""


def train_job(sweep: Path, number: int, folder: Path, command: str) -> None:
    """Train the run of job ``number`` in ``folder``, with the config that was checked before the sweep began."""
    config = SweepFolder(sweep).read_config(number)
    check_memory(config)
    outcome = train_and_draw(config, folder, command)
    if outcome.signal is not None:
        raise JobStopped(f"stopped at step {outcome.step}", outcome.signal)


def run_sweep(plan: SweepPlan, command: str) -> int:
    """Run the sweep; return 0 if all jobs are finished, 1 if some are not, 130 or 143 if a signal stopped the sweep."""
    sweep = plan.folder
    missing = plan.missing()
    sweep.create(command, plan.jobs)
    finished = len(plan.configs) - len(missing) - sum(job.same_as is not None for job in plan.jobs)
    before = f", {finished} already finished" if finished else ""
    noun = "job" if len(plan.jobs) == 1 else "jobs"
    echo(f"proxlearn: a sweep of {len(plan.jobs)} {noun}{before} -> {display_path(sweep.path)}\n")
    for job in plan.jobs:
        if job.error is not None:
            notice(f"job {job.number} ({job.title}) cannot be run: {job.error}")
    signal_number = launch(plan, missing, command) if missing else None
    # This import is after the jobs, because matplotlib and pandas take a second to import.
    from proxlearn.views.sweep.sweep_views import render_sweep, summary

    render_sweep(sweep.path)
    overwrites = any(config.overwrite for config in plan.configs.values())
    echo(summary(sweep.path, continue_command(overwrites)))
    if signal_number is not None:
        notice(f"the sweep was stopped; {continue_command(overwrites)} continues it")
        return 128 + signal_number
    states = sweep.look()
    for state in states:
        job, steps = state.job, state.run.step if state.run is not None else 0
        if state.state == DONE and job.same_as is None and job.steps is not None and steps > job.steps:
            reached = f"is already at step {steps}, beyond steps={job.steps}"
            notice(f"job {job.number} ({job.title}) {reached}; its result is used unchanged")
    return 0 if all(state.state == DONE for state in states) else 1


def launch(plan: SweepPlan, numbers: list[int], command: str) -> int | None:
    """Run the jobs with these numbers; return the signal that stopped them, or None if no signal stopped them."""
    sweep = plan.folder
    launcher = HydraLauncher(plan.master, plan.loader, sweep.path)
    jobs = []
    for number in numbers:
        sweep.write_config(number, plan.configs[number])
        folder = sweep.run_folder(plan.jobs[number])
        assert folder is not None, "a job with a config has a run folder"
        title = f"job {number}  {plan.jobs[number].title}"
        jobs.append(Job(str(number), title, train_job, (sweep.path, number, folder, command), run_folder=folder))
    outcome = run_jobs(jobs, sweep.jobs, launcher, fail_fast=plan.fail_fast, preload=PRELOAD, caption="sweep")
    return outcome.signal
