"""One job of a sweep: what a launcher calls, wherever it likes, and the process of its own that does the work."""

from __future__ import annotations

import os
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from proxlearn.errors import ProxlearnError, StoppedBySignal
from proxlearn.jobs.subprocess_job import run_in_subprocess
from proxlearn.jobs.worker import JOB_RUNNING, is_orphaned
from proxlearn.run.device import check_memory
from proxlearn.run.folder_checks import remove_if_empty
from proxlearn.run.lock import FolderInUse
from proxlearn.run.run_snapshot import take_snapshot
from proxlearn.run.sweep_folder import SweepFolder
from proxlearn.terminal.notice import notice
from proxlearn.train_session import train_and_draw

PRELOAD = (
    "proxlearn.sweeps.job",
    "proxlearn.run.training_loop",
    "proxlearn.views.run.run_views",
    "proxlearn.core.fused.fused_step",
)
LOOK_AGAIN_SECONDS = 1.0
THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
"""joblib sets them for its workers; but a run that is continued keeps the number of threads that it began with."""


@dataclass(frozen=True)
class SweepJob:
    """Hydra's task function, as values that can be sent to any process."""

    sweep: Path
    session: str
    """One launch of the sweep: a word to stop must not reach a later one."""
    numbers: tuple[int, ...]
    """Hydra counts the launched jobs from 0; these are the sweep's own numbers."""
    folders: tuple[Path, ...]
    existing: tuple[Path, ...]
    """Of each folder, the nearest one that was there before: what lies below it is removed if it stays empty."""
    command: str
    directory: Path
    threads: int | None
    fail_fast: bool
    thread_limits: dict[str, str]
    """Those of the command itself."""

    def __call__(self, composed: DictConfig) -> None:
        place = int(HydraConfig.get().job.num)
        with JOB_RUNNING:
            self.supervise(place)

    def supervise(self, place: int) -> None:
        """Have the job done in a process of its own, and record its end where it cannot do so itself."""
        number, folder = self.numbers[place], self.folders[place]
        sweep = SweepFolder(self.sweep)
        if sweep.stop_requested(self.session) or is_orphaned():
            remove_if_empty(folder, self.existing[place])
            sweep.record(number, "skipped", self.session, "the sweep was stopped before this job began")
            return
        for name in THREAD_LIMITS:
            os.environ.pop(name, None)
        os.environ.update(self.thread_limits)
        code = run_in_subprocess(
            run_job,
            (self, number, folder),
            preload=PRELOAD,
            log=sweep.log(number),
            directory=self.directory,
            stop=lambda: sweep.stop_requested(self.session) or is_orphaned(),
        )
        remove_if_empty(folder, self.existing[place])
        record = sweep.read_record(number)
        if code == -signal.SIGTERM and (sweep.stop_requested(self.session) or is_orphaned()):
            sweep.record(number, "stopped", self.session, _stop_message(folder))
        elif code < 0:
            name = signal.Signals(-code).name
            sweep.record(number, "killed", self.session, f"its process was killed by {name}")
        elif record is None or record.state in ("running", "waiting"):
            # Something ended the process from within, past all Python (an exit in a library).
            sweep.record(number, "failed", self.session, f"its process ended with exit code {code}; see its log")
        if code != 0 and self.fail_fast:
            sweep.request_stop(self.session)


def _stop_message(folder: Path) -> str:
    """How far a run had got whose process was ended before it could say so itself (a second signal, or one between the
    last step and the pictures)."""
    step = take_snapshot(folder).step
    return f"stopped at step {step}" if step else "stopped before its first step"


def run_job(task: SweepJob, number: int, folder: Path) -> int:
    """The job itself; what comes of it is recorded, printed into its log, and returned as an exit code."""
    sweep = SweepFolder(task.sweep)
    sweep.record(number, "running", task.session)
    try:
        config = sweep.read_config(number)
        check_memory(config)
        if task.threads is not None:
            import torch

            from proxlearn.core.thread_limit import usable_threads

            # A wish, not a setting: a run that is continued keeps the number it began with.
            torch.set_num_threads(usable_threads(task.threads))
        while True:
            try:
                outcome = train_and_draw(config, folder, task.command)
                break
            except FolderInUse as error:
                # Another sweep is at it: its result is ours too.
                sweep.record(number, "waiting", task.session, error.problem)
                time.sleep(LOOK_AGAIN_SECONDS)
    except ProxlearnError as error:
        notice(str(error))
        state = "stopped" if isinstance(error, StoppedBySignal) else "failed"
        sweep.record(number, state, task.session, str(error))
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        sweep.record(number, "failed", task.session, f"{type(error).__name__}: {line}; see its log")
        return 1
    if outcome.signal is not None:
        sweep.record(number, "stopped", task.session, f"stopped at step {outcome.step}")
        return 128 + outcome.signal
    sweep.record(number, "finished", task.session)
    return 0
