"""Jobs, which are functions called in separate processes under any launcher, and the supervision of the processes.

The processes are forked from a server that has imported torch and the modules for plots but has computed nothing, so
that a process starts in a fraction of a second and inherits no state from an earlier job.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from proxlearn.errors import ProxlearnError, StoppedBySignal
from proxlearn.files.atomic import break_hard_links
from proxlearn.jobs.launcher_setup import JOB_RUNNING, is_orphaned
from proxlearn.jobs.records import ACTIVE, DONE, JobRecords
from proxlearn.jobs.result_cache import cache_key
from proxlearn.run.folder_recognition import remove_if_empty
from proxlearn.run.lock import FolderInUse
from proxlearn.run.observed_status import take_snapshot
from proxlearn.terminal.streams import notice, open_standard_streams

POLL_SECONDS = 0.5
PROCESS_LOCK = threading.Lock()
"""Lock for starting a process and for reading its exit code; starting a process also reads the exit codes of other
processes.
"""


def run_in_subprocess(
    target: Callable[..., int],
    args: Sequence[Any],
    *,
    preload: Sequence[str],
    log: Path,
    directory: Path,
    stop: Callable[[], bool],
) -> int:
    """Run ``target(*args)`` in ``directory``; return its exit code, or the negative signal number if it was killed.

    The output of the process is appended to ``log``. When ``stop()`` becomes true, the process receives SIGTERM, and
    the function waits for the end of the process.
    """
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        # A joblib worker sets its own start method, which is not available in a process that the worker starts.
        multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    process = context.Process(target=_child, args=(target, args, log, directory))
    with PROCESS_LOCK:
        process.start()
    stopping = False
    while not wait([process.sentinel], POLL_SECONDS):
        if not stopping and stop():
            process.terminate()
            stopping = True
    with PROCESS_LOCK:
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _child(target: Callable[..., int], args: Sequence[Any], log: Path, directory: Path) -> None:
    # A terminal sends Ctrl-C to all processes; only the supervisor stops this one, with SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    break_hard_links(log)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(handle, stream)
    if handle > 2:
        os.close(handle)
    # The log may be on a disk that becomes full; a lost line of output must not make the job fail.
    open_standard_streams()
    # Relative paths of the user start from this directory; a cluster may start processes in another one.
    with contextlib.suppress(OSError):
        os.chdir(directory)
    threading.Thread(target=_follow_parent, daemon=True).start()
    sys.exit(target(*args))


def _follow_parent() -> None:
    """Send SIGTERM to this process when its supervisor, which records the end of the job, has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


RETRY_SECONDS = 1.0
THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Environment variables that joblib sets for its workers; a job restores the values of the command's environment."""


@dataclass(frozen=True)
class Job:
    """A job: one call of ``target(*args)``.

    The target is an importable function whose arguments can be pickled. It returns None or a result, which is a dict of
    JSON values. It raises JobStopped if a SIGTERM has stopped it, and any other exception if it fails. A target that
    raises FolderInUse is called again until the other process has released the folder.
    """

    name: str
    """Name that is unique among the jobs; the record and the log are FOLDER/NAME.json and FOLDER/NAME.log."""
    title: str
    """Description of the job in messages to the user."""
    target: Callable[..., Mapping[str, Any] | None]
    args: tuple[Any, ...] = ()
    identity: Mapping[str, Any] | None = None
    """Everything that determines the result (see result_cache.py); None if the result is never cached."""
    run_folder: Path | None = None
    """The folder of the run that the job trains, or None; it is read to show progress, and removed if empty."""
    log: Path | None = None
    """A file other than FOLDER/NAME.log for the job's output; several jobs may write to the same file."""

    @property
    def key(self) -> str | None:
        return None if self.identity is None else cache_key(self.identity)


class JobStopped(Exception):
    """Raised after a signal has stopped a job; the job has stored everything that it needs to continue."""

    def __init__(self, message: str, number: int = signal.SIGTERM) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


@dataclass(frozen=True)
class JobBatch:
    """A batch of jobs that are launched together; it can be pickled, and Hydra calls it as its task function."""

    jobs: tuple[Job, ...]
    existing: tuple[Path | None, ...]
    """For each job, the run folder or its nearest parent that existed at the launch.

    After the job, empty folders below this folder are removed.
    """
    folder: Path
    """The folder of the jobs' records."""
    session: str
    """Identifier of one call of the runner, so that a request to stop does not affect a later call."""
    directory: Path
    """The working directory of the command, to which the user's relative paths refer."""
    threads: int | None
    fail_fast: bool
    preload: tuple[str, ...]
    thread_limits: dict[str, str]
    """The values of the variables in THREAD_LIMITS in the environment of the command."""

    def __call__(self, composed: DictConfig) -> None:
        for name in THREAD_LIMITS:
            os.environ.pop(name, None)
        os.environ.update(self.thread_limits)
        with JOB_RUNNING:
            self.supervise(int(HydraConfig.get().job.num))

    def log(self, job: Job) -> Path:
        return job.log or JobRecords(self.folder).log(job.name)

    def stopping(self) -> bool:
        return JobRecords(self.folder).stop_requested(self.session) or is_orphaned()

    def supervise(self, place: int) -> None:
        """Run the job with the index ``place`` in a separate process, and record its end if the job has not done so."""
        job, existing, records = self.jobs[place], self.existing[place], JobRecords(self.folder)
        if self.stopping():
            self._remove_empty_folder(job, existing)
            records.write(job.name, "skipped", self.session, "stopped before this job started")
            return
        code = run_in_subprocess(
            run_target,
            (self, job),
            preload=self.preload,
            log=self.log(job),
            directory=self.directory,
            stop=self.stopping,
        )
        self._remove_empty_folder(job, existing)
        record = records.read(job.name)
        unrecorded = record is None or record.state in ACTIVE
        if self.stopping() and (code == -signal.SIGTERM or (unrecorded and code == 128 + signal.SIGTERM)):
            records.write(job.name, "stopped", self.session, _stop_message(job))
        elif code < 0:
            records.write(job.name, "killed", self.session, f"its process was killed by {signal.Signals(-code).name}")
        elif unrecorded:
            # The process ended without returning to Python, for example because a library called exit.
            message = f"its process ended with exit code {code}; see {self.log(job).name}"
            records.write(job.name, "failed", self.session, message)
        if code != 0 and self.fail_fast:
            records.request_stop(self.session)

    def _remove_empty_folder(self, job: Job, existing: Path | None) -> None:
        if job.run_folder is not None and existing is not None:
            remove_if_empty(job.run_folder, existing)


def _stop_message(job: Job) -> str:
    """Return a message with the last step of a job whose process was stopped before it had recorded that step.

    This happens after a second signal, or after a signal between the last step and the plots.
    """
    if job.run_folder is None:
        return "stopped"
    step = take_snapshot(job.run_folder).step
    return f"stopped at step {step}" if step else "stopped before its first step"


def run_target(batch: JobBatch, job: Job) -> int:
    """Run the job inside its process, record its result or its error, and return an exit code."""
    records = JobRecords(batch.folder)
    records.write(job.name, "running", batch.session)
    try:
        if batch.threads is not None:
            import torch

            from proxlearn.portability import usable_threads

            # This is only a default; a continued run keeps the number of threads with which it started.
            torch.set_num_threads(usable_threads(batch.threads))
        result = _call_until_free(batch, job, records)
    except JobStopped as stopped:
        records.write(job.name, "stopped", batch.session, str(stopped))
        return stopped.exit_code
    except ProxlearnError as error:
        notice(str(error))
        state = "stopped" if isinstance(error, StoppedBySignal) else "failed"
        records.write(job.name, state, batch.session, str(error))
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"{type(error).__name__}: {line:.300}; see {batch.log(job).name}"
        records.write(job.name, "failed", batch.session, message)
        return 1
    records.write(job.name, DONE, batch.session, key=job.key, result=None if result is None else dict(result))
    return 0


def _call_until_free(batch: JobBatch, job: Job, records: JobRecords) -> Mapping[str, Any] | None:
    """Return the result of the job's function; wait and try again while another process uses the run folder."""
    while True:
        try:
            return job.target(*job.args)
        except FolderInUse as error:
            records.write(job.name, "waiting", batch.session, error.problem)
            time.sleep(RETRY_SECONDS)
