"""The runner of all jobs: sweeps, comparisons and the paper's experiments pass their jobs to ``run_jobs``.

Example::

    def measure(dataset: str, seed: int) -> dict[str, Any]:  # an importable function
        return {"accuracy": ...}

    cache = ResultCache(folder / "results.jsonl")
    jobs = [
        Job(f"wdbc-{seed}", f"wdbc, seed {seed}", measure, ("wdbc", seed), identity={"revision": 1, "seed": seed, ...})
        for seed in range(5)
    ]
    outcome = run_jobs(jobs, folder / ".proxlearn-jobs", LocalPool(parallel=2, threads=1), cache=cache)
    accuracies = [cache.get(job.identity) for job in jobs]
    sys.exit(outcome.exit_code)

Each job has its own process, so a job that fails or is killed does not affect the others. A job whose identity is in
the cache is not run. A job that trains a run (``run_folder``) continues from its newest checkpoint; the caller leaves
out finished runs. SIGINT and SIGTERM stop the jobs, which store what they need to continue; repeating the call
completes the missing jobs. The caller holds the lock of the folder (run/lock.py), so that there is one runner per
folder.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from proxlearn.errors import InputError
from proxlearn.jobs.job import THREAD_LIMITS, Job, JobBatch
from proxlearn.jobs.launchers import LocalPool
from proxlearn.jobs.progress import JobsWatcher, store_result
from proxlearn.jobs.records import DONE, JobRecord, JobRecords
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.portability import process_exists
from proxlearn.run.folder_recognition import nearest_existing_folder
from proxlearn.run.observed_status import take_snapshot
from proxlearn.terminal.streams import notice

ROUNDS = 2
"""Maximum number of times that a job is launched. If a launcher fails, for example because a joblib worker was
killed or a node was lost, its unfinished jobs are launched once more.
"""
SAME_SIGNAL_SECONDS = 1.0
LAST_JOBS_SECONDS = 60.0
"""Maximum time in seconds that the runner waits for jobs that are still running after the launcher has returned."""


class JobLauncher(Protocol):
    """The interface of the job launchers, which are LocalPool and HydraLauncher."""

    def open(self) -> None:
        """Prepare the launcher; raise InputError if this machine cannot launch jobs."""

    def batch_size(self, jobs: int) -> int:
        """Return how many of ``jobs`` jobs are launched together."""

    def threads_per_job(self, jobs: int) -> int | None:
        """Return the number of threads per job if ``jobs`` jobs run together, or None if torch chooses the number."""

    def launch(self, batch: JobBatch) -> None:
        """Run the jobs of a batch and return when all have ended."""

    def close(self) -> None:
        """Shut down the processes that the launcher has started."""


@dataclass(frozen=True)
class JobsOutcome:
    """The outcome of all jobs in one call of ``run_jobs``."""

    records: dict[str, JobRecord]
    """Records by job name; a job that was not started, or whose result was cached, has no record."""
    cached: frozenset[str]
    """Names of the jobs that were not run because the cache has their results."""
    total: int
    signal: int | None
    """The signal that stopped the jobs, or None if no signal stopped them."""

    @property
    def failures(self) -> dict[str, JobRecord]:
        """The records of the jobs that ended without finishing, by job name."""
        return {name: record for name, record in self.records.items() if record.state != DONE}

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if all jobs are finished, 1 if some are not, and 130 or 143 if a signal stopped the jobs."""
        if self.signal is not None:
            return 128 + self.signal
        finished = len(self.records) - len(self.failures) + len(self.cached)
        return int(finished < self.total)


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    launcher: JobLauncher | None = None,
    *,
    cache: ResultCache | None = None,
    fail_fast: bool = False,
    preload: Sequence[str] = (),
    caption: str = "jobs",
) -> JobsOutcome:
    """Run the jobs that have no result in ``cache``, and return the outcome of all jobs.

    Parameters
    ----------
    jobs
        The jobs, with unique names.
    folder
        The folder of the jobs' records and logs; on a cluster, all nodes must have access to it.
    launcher
        LocalPool(parallel, threads), by default with one job at a time, or a HydraLauncher.
    cache
        The cache from which results are read and in which they are stored as soon as their jobs have finished. Failures
        are not stored.
    fail_fast
        Whether the first failure stops the other jobs.
    preload
        Modules that are imported once, before the jobs' processes are forked.
    caption
        The name of the progress bar.
    """
    if len({job.name for job in jobs}) < len(jobs):
        raise InputError("two jobs have the same name", "give each job a unique name")
    launcher = launcher or LocalPool()
    records, session = JobRecords(folder), secrets.token_hex(4)
    # An earlier command that was killed may have left results that are not in the cache yet.
    cached = {job.name for job in jobs if is_cached(cache, job) or store_result(cache, job, records.read(job.name))}
    missing = [job for job in jobs if job.name not in cached]
    for job in missing:
        records.remove(job.name)
    signals: list[int] = []
    if missing:
        launcher.open()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with stop_on_signal(records, session) as signals, JobsWatcher(records, missing, session, caption, cache):
                _launch_in_rounds(launcher, missing, records, session, fail_fast, tuple(preload))
                _wait_for_running_jobs(missing, records, session)
                launcher.close()
        except KeyboardInterrupt:
            # This is the second signal: the first one requested the jobs to stop, and this one ends them.
            # The stop request is kept, so that no supervisor starts another job in the meantime.
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        except Exception:
            records.clear_stop(session)
            raise
        records.clear_stop(session)
    ended = {job.name: record for job in missing if (record := records.read(job.name)) is not None}
    return JobsOutcome(ended, frozenset(cached), len(jobs), signals[0] if signals else None)


def is_cached(cache: ResultCache | None, job: Job) -> bool:
    return cache is not None and job.identity is not None and job.identity in cache


def _launch_in_rounds(
    launcher: JobLauncher,
    jobs: Sequence[Job],
    records: JobRecords,
    session: str,
    fail_fast: bool,
    preload: tuple[str, ...],
) -> None:
    limits = {name: os.environ[name] for name in THREAD_LIMITS if name in os.environ}
    for attempt in range(ROUNDS):
        left = [job for job in jobs if not records.has_ended(job.name, session)]
        if not left or records.stop_requested(session):
            return
        if attempt:
            if not any(records.read(job.name) for job in jobs):
                # The launcher has not started any job (wrong address, no permission), so a second attempt would not
                # help.
                return
            noun = "job" if len(left) == 1 else "jobs"
            notice(f"restarting {len(left)} {noun} that the launcher did not finish")
        size = launcher.batch_size(len(left))
        for start in range(0, len(left), size):
            some = tuple(left[start : start + size])
            existing = tuple(job.run_folder and nearest_existing_folder(job.run_folder) for job in some)
            threads = launcher.threads_per_job(len(some))
            batch = JobBatch(some, existing, records.folder, session, Path.cwd(), threads, fail_fast, preload, limits)
            try:
                launcher.launch(batch)
            except Exception as error:
                line = (str(error).strip() or type(error).__name__).splitlines()[0]
                reason = f"{type(error).__name__}: {line:.300}"
                notice(f"the launcher failed ({reason}); the same command runs its unfinished jobs again")


def _wait_for_running_jobs(jobs: Sequence[Job], records: JobRecords, session: str) -> None:
    """Wait at most LAST_JOBS_SECONDS until the jobs that are still running have ended and stored their checkpoints."""
    end = time.monotonic() + LAST_JOBS_SECONDS
    while time.monotonic() < end:
        if not any(_is_running(job, records, session) for job in jobs):
            return
        time.sleep(0.5)


def _is_running(job: Job, records: JobRecords, session: str) -> bool:
    record = records.read(job.name)
    if record is not None and record.session == session and record.has_ended:
        return False
    if job.run_folder is not None:
        return take_snapshot(job.run_folder).state == "running"
    return record is not None and record.session == session and writer_exists(record)


def writer_exists(record: JobRecord) -> bool:
    """Return whether the process that wrote a record exists; for a process on another machine, return False."""
    return record.host == platform.node() and process_exists(record.pid)


@contextlib.contextmanager
def stop_on_signal(records: JobRecords, session: str) -> Iterator[list[int]]:
    """Request all jobs to stop if SIGINT or SIGTERM arrives in the block; yield the list of received signals.

    A second signal raises KeyboardInterrupt, which ends the command at once.
    """
    received: list[int] = []
    first = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if received:
            # `timeout` and some terminals send the same signal twice at once, which counts as one request.
            if time.monotonic() - first < SAME_SIGNAL_SECONDS:
                return
            raise KeyboardInterrupt
        first = time.monotonic()
        received.append(number)
        records.request_stop(session)
        notice("stopping; running jobs store their state first (a second signal ends them at once)")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
