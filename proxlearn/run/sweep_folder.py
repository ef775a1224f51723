"""The sweep folder: the jobs of a sweep and their final states; the results are in the run folders of the jobs.

sweep.yaml lists the jobs. jobs/<number>.json and jobs/<number>.log are the record and the output of a job
(jobs/records.py). This module does not import torch.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from proxlearn.config.schema import TrainConfig, build, config_values
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json, read_yaml
from proxlearn.jobs.records import DONE, JobRecord, JobRecords
from proxlearn.run.observed_status import NEWEST, RunSnapshot, take_snapshot

RESERVED = frozenset(("job", "state", "step", "error", "seconds", "started", "folder", "runs", *NEWEST))
"""Names of columns in a sweep's tables; no swept key may have one of these names."""
MOST_PLAN = 2**24
"""Maximum size of sweep.yaml in bytes; each job takes about two hundred bytes."""


@dataclass(frozen=True)
class SweepJob:
    """One job of a sweep: a combination of the swept values."""

    number: int
    values: dict[str, str]
    """The job's value of each swept key, as written by the user."""
    steps: int | None = 0
    folder: str | None = None
    """The run folder, relative to the sweep folder, so that both can be moved together."""
    error: str | None = None
    """The reason why the job cannot be run, or None if it can be run."""
    same_as: int | None = None
    """Number of another job with the same run and at least as many steps; only that job is run."""
    settings_sha256: str | None = None
    """Digest of the settings that determine the trajectory, to detect another run in the folder; None in sweeps of
    version 0.1.0.
    """

    @property
    def title(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.values.items()) or "the only job"


@dataclass(frozen=True)
class JobState:
    """The current state of a job and of its run."""

    job: SweepJob
    state: str
    error: str | None
    run: RunSnapshot | None


class SweepFolder:
    """The files of a sweep folder, and methods that read and write them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = path / "sweep.yaml"
        self.jobs = path / "jobs"
        self.records = JobRecords(self.jobs)

    def create(self, command: str, jobs: list[SweepJob]) -> None:
        self.jobs.mkdir(parents=True, exist_ok=True)
        plan = {"command": command, "jobs": [asdict(job) for job in jobs]}
        write_atomically(self.plan, yaml.safe_dump(plan, sort_keys=False, allow_unicode=True).encode())

    def write_config(self, number: int, config: TrainConfig) -> None:
        """Store the config of a job for the process that runs the job, possibly on another machine."""
        write_json(self.jobs / f"{number}.config.json", config_values(config))

    def read_config(self, number: int) -> TrainConfig:
        return build(TrainConfig, read_json(self.jobs / f"{number}.config.json"))

    def read_jobs(self) -> list[SweepJob]:
        try:
            plan = read_yaml(self.plan, MOST_PLAN)
            jobs = [_parse_job(values) for values in plan["jobs"]]
            if len({job.number for job in jobs}) < len(jobs) or len({tuple(job.values) for job in jobs}) != 1:
                raise ValueError("two jobs have the same number or different keys")
            return jobs
        except AbsentFile as error:
            raise InputError(
                f"{self.path} is not a sweep folder: it has no sweep.yaml",
                "give a folder that `proxlearn train -m` created",
            ) from error
        except (ValueError, TypeError, KeyError, UnreadableFile) as error:
            why = error.why if isinstance(error, UnreadableFile) else "it is not a list of jobs"
            raise UnreadableFile(self.plan, why, "repeat the `proxlearn train -m ...` command") from error

    def run_folder(self, job: SweepJob) -> Path | None:
        return None if job.folder is None else Path(os.path.normpath(self.path / job.folder))

    def look(self) -> list[JobState]:
        """Return the current states of all jobs."""
        states = {job.number: self.state(job) for job in self.read_jobs()}
        for state in list(states.values()):
            if state.job.same_as in states:
                other = states[state.job.same_as]
                note = f"the same run as job {other.job.number}"
                states[state.job.number] = JobState(state.job, other.state, note, other.run)
        return list(states.values())

    def state(self, job: SweepJob) -> JobState:
        """Return the current state of one job."""
        folder = self.run_folder(job)
        if job.error is not None or folder is None:
            return JobState(job, "invalid", job.error, None)
        run, record = take_snapshot(folder), self.records.read(str(job.number))
        if job.settings_sha256 is not None and run.settings_sha256 not in (None, job.settings_sha256):
            return JobState(job, "failed", "its folder contains a run with other settings", None)
        if has_finished(run, job.steps) and not _is_newer(record, run):
            return JobState(job, DONE, None, run)
        if run.state == "running":
            return JobState(job, "running", None, run)
        if record is None or record.state in (DONE, "running", "waiting"):
            # The status of the run is newer than the record, or the job was killed together with its supervisor.
            waiting = record is not None and record.state == "waiting" and run.state == "absent"
            state = {"absent": "not started", DONE: "stopped"}.get(run.state, run.state)
            return JobState(job, "waiting" if waiting else state, run.error, run)
        return JobState(job, record.state, record.error or run.error, run)


def _is_newer(record: JobRecord | None, run: RunSnapshot) -> bool:
    """Return whether a job failed after the newest session in its run folder began.

    The job was then rejected at its start, and the session belongs to another job with the same folder.
    """
    if record is None or record.state != "failed":
        return False
    try:
        return datetime.fromisoformat(record.time) >= datetime.fromisoformat(run.started)
    except (TypeError, ValueError):
        return False


def _parse_job(values: Any) -> SweepJob:
    """Parse a job of sweep.yaml, which is not trusted; raise TypeError or ValueError if the job is not valid."""
    job = SweepJob(**values)
    if not isinstance(job.values, dict):
        raise TypeError("the values of a job are not a mapping")
    numbers = (job.number, 0 if job.steps is None else job.steps, 0 if job.same_as is None else job.same_as)
    texts = (*job.values.items(), (job.folder or "", job.error or "", job.settings_sha256 or ""))
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise ValueError("a field is not a number")
    if not all(isinstance(text, str) for pair in texts for text in pair) or "\0" in (job.folder or ""):
        raise ValueError("a field is not a string")
    if RESERVED & job.values.keys():
        raise ValueError("a key is reserved")
    return job


def has_finished(run: RunSnapshot, steps: int | None) -> bool:
    """Return whether a run has finished at step ``steps`` or later; None means the selected number of steps."""
    return run.state == DONE and (steps is None or run.step >= steps)
