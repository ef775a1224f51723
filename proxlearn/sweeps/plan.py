"""A sweep before it starts: every combination composed and checked, and the folder where its run is or will be."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, open_dict

from proxlearn.config.compose import refuse_code, translate_hydra_error
from proxlearn.config.schema import NOT_TRAJECTORY, DatasetConfig, TrainConfig, digest
from proxlearn.errors import InputError
from proxlearn.files.user_paths import absolute_folder
from proxlearn.jobs.launchers import runs_here
from proxlearn.jobs.records import DONE
from proxlearn.loggers.logger import check_logger
from proxlearn.run.device import check_memory, resolve_device
from proxlearn.run.overwrite import is_interrupted
from proxlearn.run.ownership import refuse_table_inside, require_run_or_empty, require_sweep_or_empty
from proxlearn.run.run_config import validate_config
from proxlearn.run.run_folder import RunFolder, check_writable
from proxlearn.run.sweep_folder import SweepFolder, SweepJob
from proxlearn.terminal.notice import notice
from proxlearn.validators import flag

MOST_JOBS = 10_000
SAY_SO = 50
"""Composing takes a tenth of a second a job: from so many jobs on, it is said."""
NOT_NAMED = ("fail_fast", "device.threads", "logger.uri")
"""Further keys that leave every trajectory alone: the sweep's folder does not depend on them."""


@dataclass(frozen=True)
class SweepPlan:
    """All that launching needs."""

    master: DictConfig
    """What Hydra composed for the sweep as a whole."""
    loader: ConfigLoader
    folder: SweepFolder
    jobs: list[SweepJob]
    configs: dict[int, TrainConfig]
    """By job number, of those that can be run."""
    fail_fast: bool

    def missing(self) -> list[int]:
        """The jobs that are not finished: what there is left to run."""
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
        # Old figures must not pass for those of a file that was edited since: the job itself says so.
        return state.run.data_sha256 == data_sha256(config.dataset, checksums)


def plan_sweep(master: DictConfig, loader: ConfigLoader) -> SweepPlan:
    """Expand and check; wrong as a whole is refused here, before a folder is made."""
    overrides = task_overrides(master, loader)
    swept = [override.get_key_element() for override in overrides if override.is_sweep_override()]
    count = math.prod(_count(override) for override in overrides)
    if count > MOST_JOBS:
        raise InputError(f"the sweep has more than {MOST_JOBS} jobs", "choose fewer values")
    if count >= SAY_SO:
        notice(f"checking {count} jobs ...")
    (combinations,) = BasicSweeper.split_arguments(overrides, None)
    folder = SweepFolder(sweep_folder(master, overrides, swept))
    require_sweep_or_empty(folder.path)
    jobs: list[SweepJob] = []
    configs: dict[int, TrainConfig] = {}
    for number, words in enumerate(combinations):
        pairs = (word.partition("=") for word in words)
        values = {key.lstrip("+"): value for key, _, value in pairs if key in swept}
        try:
            config, run_folder = check_job(master, loader, words, number, runs_here(master))
        except InputError as error:
            jobs.append(SweepJob(number, values, error=str(error)))
            continue
        configs[number] = config
        place = os.path.relpath(run_folder, folder.path)
        jobs.append(SweepJob(number, values, config.steps, place, settings_sha256=digest(config)))
    fail_fast = flag("fail_fast", master.get("fail_fast", False))
    refuse_shared_folders(jobs, folder)
    bad = [job.error for job in jobs if job.error is not None]
    if bad and (fail_fast or len(bad) == len(jobs)):
        problem, _, remedy = bad[0].rpartition("; ")
        raise InputError(problem, remedy)
    return SweepPlan(master, loader, folder, share_runs(jobs), configs, fail_fast)


def task_overrides(master: DictConfig, loader: ConfigLoader) -> list[Override]:
    """What the command line and hydra.sweeper.params ask for, the last word on a key winning."""
    params = master.hydra.sweeper.get("params") or {}
    words = [f"{key}={value}" for key, value in params.items()]
    words += [str(word) for word in master.hydra.overrides.task]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(words)
    return list({override.get_key_element(): override for override in parsed}.values())


def check_job(
    master: DictConfig, loader: ConfigLoader, words: list[str], number: int, here: bool
) -> tuple[TrainConfig, Path]:
    """One job's config and run folder, or an InputError."""
    try:
        composed = loader.load_sweep_config(master, words)
        with open_dict(composed):
            composed.hydra.job.id, composed.hydra.job.num = str(number), number
        refuse_code(composed)
        config = validate_config(composed)
        folder = absolute_folder(Path(str(composed.hydra.sweep.dir)) / str(composed.hydra.sweep.subdir))
    except Exception as error:
        # Hydra and OmegaConf stumble over values in many ways: they are the user's all the same.
        raise translate_hydra_error(error) from error
    if here:
        check_memory(config)
        resolve_device(config.device.device)
        check_logger(config.logger)
    check_writable(folder)
    require_run_or_empty(folder)
    refuse_table_inside(config.dataset.path, folder)
    # Of an overwrite that was interrupted, the job brings the old run back first, and looks then.
    if not config.overwrite and not is_interrupted(folder):
        RunFolder(folder).check_same_run(config)
    return config, folder


def refuse_shared_folders(jobs: list[SweepJob], sweep: SweepFolder) -> None:
    """Refuse two jobs with different trajectories in one folder: the second would get the first one's figures."""
    owners: dict[str, SweepJob] = {}
    for job in jobs:
        if (folder := sweep.run_folder(job)) is None:
            continue
        owner = owners.setdefault(os.path.realpath(folder), job)
        if owner.settings_sha256 != job.settings_sha256:
            problem = f"jobs {owner.number} ({owner.title}) and {job.number} ({job.title}) have one folder, {folder}"
            raise InputError(problem, "leave hydra.sweep.subdir out, or use hydra.sweep.subdir='${hydra.job.num}'")


def share_runs(jobs: list[SweepJob]) -> list[SweepJob]:
    """Jobs that differ only in what no trajectory depends on are one run: the one with most steps does it."""
    doers: dict[str, SweepJob] = {}
    for job in jobs:
        if job.folder is not None and (job.folder not in doers or (job.steps or 0) > (doers[job.folder].steps or 0)):
            doers[job.folder] = job
    shared = ((job, doers[job.folder]) for job in jobs if job.folder is not None)
    same = {job.number: doer.number for job, doer in shared if doer is not job}
    return [replace(job, same_as=same.get(job.number)) for job in jobs]


def sweep_folder(master: DictConfig, overrides: list[Override], swept: list[str]) -> Path:
    """Named by the swept keys and a hash of the overrides; like a run's, it does not depend on steps and the like."""
    kept = {
        key: str(override.input_line).partition("=")[2]
        for override in overrides
        if (key := override.get_key_element().lstrip("+")) not in (*NOT_TRAJECTORY, *NOT_NAMED)
    }
    config_name = str(master.hydra.job.config_name)
    text = "\n".join([config_name, *(f"{key}={kept[key]}" for key in sorted(kept))])
    readable = re.sub(r"[^\w.-]", "", "-".join(key.lstrip("+") for key in swept))[:60] or "sweep"
    name = f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return absolute_folder(str(master.hydra.sweep.dir)) / "sweeps" / name


def data_sha256(dataset: DatasetConfig, known: dict[str, str | None]) -> str | None:
    """The checksum of the data that a run would read now; None where they cannot be read. Read once for all jobs."""
    from proxlearn.data import registry

    key = repr(dataset)
    if key not in known:
        try:
            known[key] = registry.load(dataset).sha256
        except InputError:
            known[key] = None
    return known[key]


def _count(override: Override) -> int:
    if not (override.is_sweep_override() and override.is_discrete_sweep()):
        return 1
    return len(list(itertools.islice(override.sweep_string_iterator(), MOST_JOBS + 1)))
