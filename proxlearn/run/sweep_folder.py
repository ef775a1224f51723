"""The sweep folder: which jobs a sweep has, and how each one ended; the results are in the jobs' own run folders.

sweep.yaml lists the jobs, jobs/<number>.json says how a job went as a process (a run that was killed cannot say so
itself), jobs/<number>.log is what it printed. Torch is not imported here.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from proxlearn.config.schema import TrainConfig, build, config_values
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json, read_yaml
from proxlearn.run.run_snapshot import NEWEST, RunSnapshot, take_snapshot

DONE = "finished"
RESERVED = frozenset(("job", "state", "step", "error", "seconds", "started", "folder", "runs", *NEWEST))
"""Columns of a sweep's tables, which no swept key can be called."""
MOST_PLAN = 2**24
"""Bytes of sweep.yaml: two hundred for each job."""


@dataclass(frozen=True)
class Job:
    """One combination of the swept values."""

    number: int
    values: dict[str, str]
    """Swept key -> this job's value, as written."""
    steps: int | None = 0
    folder: str | None = None
    """The run folder, seen from the sweep folder, so that both can be moved together."""
    error: str | None = None
    """Why it cannot be run at all."""
    same_as: int | None = None
    """Another job that is the same run: that one is done, at the larger number of steps."""
    settings_sha256: str | None = None
    """Digest of what determines its trajectory: a folder in which another run was made since is not this job's.
    None in sweeps of version 0.1.0."""

    @property
    def title(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.values.items()) or "the only job"


@dataclass(frozen=True)
class JobRecord:
    """How a job goes as a process."""

    state: str
    """running, waiting (another process has the run), finished, stopped, failed, killed, skipped."""
    session: str
    error: str | None = None
    pid: int = 0
    host: str = ""
    time: str = ""


@dataclass(frozen=True)
class JobState:
    """A job, and what is known of its run now."""

    job: Job
    state: str
    error: str | None
    run: RunSnapshot | None


class SweepFolder:
    """Names of the files, and their reading and writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = path / "sweep.yaml"
        self.jobs = path / "jobs"

    def log(self, number: int) -> Path:
        return self.jobs / f"{number}.log"

    def create(self, command: str, jobs: list[Job]) -> None:
        self.jobs.mkdir(parents=True, exist_ok=True)
        plan = {"command": command, "jobs": [asdict(job) for job in jobs]}
        write_atomically(self.plan, yaml.safe_dump(plan, sort_keys=False, allow_unicode=True).encode())

    def write_config(self, number: int, config: TrainConfig) -> None:
        """What a job is to do, for the process that will do it, wherever that is."""
        write_json(self.jobs / f"{number}.config.json", config_values(config))

    def read_config(self, number: int) -> TrainConfig:
        return build(TrainConfig, read_json(self.jobs / f"{number}.config.json"))

    def read_jobs(self) -> list[Job]:
        try:
            plan = read_yaml(self.plan, MOST_PLAN)
            jobs = [_parse_job(values) for values in plan["jobs"]]
            if len({job.number for job in jobs}) < len(jobs) or len({tuple(job.values) for job in jobs}) != 1:
                raise ValueError("its jobs do not fit together")
            return jobs
        except AbsentFile as error:
            raise InputError(f"{self.path} is not a sweep folder: no sweep.yaml in it", "name another") from error
        except (ValueError, TypeError, KeyError, UnreadableFile) as error:
            why = error.why if isinstance(error, UnreadableFile) else "it is no list of jobs"
            raise UnreadableFile(self.plan, why, "give the `proxlearn train -m ...` command again") from error

    def run_folder(self, job: Job) -> Path | None:
        return None if job.folder is None else Path(os.path.normpath(self.path / job.folder))

    def record(self, number: int, state: str, session: str, error: str | None = None) -> None:
        self.jobs.mkdir(parents=True, exist_ok=True)
        made = JobRecord(state, session, error, os.getpid(), platform.node(), time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        write_json(self.jobs / f"{number}.json", asdict(made))

    def read_record(self, number: int) -> JobRecord | None:
        try:
            return _parse_record(read_json(self.jobs / f"{number}.json"))
        except (ValueError, TypeError, UnreadableFile):
            return None

    def forget(self, number: int) -> None:
        """Take away how a job went last time: it starts anew."""
        (self.jobs / f"{number}.json").unlink(missing_ok=True)

    # Whoever is to stop a session may be in another process, on another machine: a file tells all.

    def _stop_file(self, session: str) -> Path:
        return self.jobs / f".stop-{session}"

    def request_stop(self, session: str) -> None:
        self._stop_file(session).touch()

    def stop_requested(self, session: str) -> bool:
        return self._stop_file(session).exists()

    def clear_stop(self, session: str) -> None:
        self._stop_file(session).unlink(missing_ok=True)

    # How the jobs stand.

    def look(self) -> list[JobState]:
        """All jobs now."""
        states = {job.number: self.state(job) for job in self.read_jobs()}
        for state in list(states.values()):
            if state.job.same_as in states:
                other = states[state.job.same_as]
                note = f"the same run as job {other.job.number}"
                states[state.job.number] = JobState(state.job, other.state, note, other.run)
        return list(states.values())

    def state(self, job: Job) -> JobState:
        """One job now."""
        folder = self.run_folder(job)
        if job.error is not None or folder is None:
            return JobState(job, "invalid", job.error, None)
        run, record = take_snapshot(folder), self.read_record(job.number)
        if job.settings_sha256 is not None and run.settings_sha256 not in (None, job.settings_sha256):
            return JobState(job, "failed", "its folder holds a run with other settings", None)
        if has_finished(run, job.steps) and not _is_newer(record, run):
            return JobState(job, DONE, None, run)
        if run.state == "running":
            return JobState(job, "running", None, run)
        if record is None or record.state in (DONE, "running", "waiting"):
            # The run's own word is newer than the record, or there is none of a process that died with its supervisor.
            waiting = record is not None and record.state == "waiting" and run.state == "absent"
            state = {"absent": "not started", DONE: "stopped"}.get(run.state, run.state)
            return JobState(job, "waiting" if waiting else state, run.error, run)
        return JobState(job, record.state, record.error or run.error, run)


def _is_newer(record: JobRecord | None, run: RunSnapshot) -> bool:
    """Whether a job failed after its run's newest session began: it was refused, and the run is not its result."""
    if record is None or record.state != "failed":
        return False
    try:
        return datetime.fromisoformat(record.time) >= datetime.fromisoformat(run.started)
    except (TypeError, ValueError):
        return False


def _parse_job(values: Any) -> Job:
    """A job of a plan that anyone may have written; TypeError or ValueError where it is none."""
    job = Job(**values)
    numbers = (job.number, 0 if job.steps is None else job.steps, 0 if job.same_as is None else job.same_as)
    texts = (*job.values.items(), (job.folder or "", job.error or "", job.settings_sha256 or ""))
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise ValueError("a number that is none")
    if not all(isinstance(text, str) for pair in texts for text in pair) or "\0" in (job.folder or ""):
        raise ValueError("a text that is none")
    if RESERVED & job.values.keys():
        raise ValueError("a key that no setting has")
    return job


def _parse_record(values: Any) -> JobRecord:
    record = JobRecord(**values)
    texts = (record.state, record.session, record.error or "", record.host, record.time)
    if not all(isinstance(text, str) for text in texts) or type(record.pid) is not int:
        raise ValueError("a field of another type")
    return record


def has_finished(run: RunSnapshot, steps: int | None) -> bool:
    """Whether a run has made the steps asked for, or (None) those that it chose for itself."""
    return run.state == DONE and (steps is None or run.step >= steps)
