"""``proxlearn train -m``: plan, hand what is missing to a launcher, and say how every job went."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from hydra._internal.callbacks import Callbacks
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext

from proxlearn.errors import continue_command
from proxlearn.files.user_paths import display_path
from proxlearn.jobs.launchers import (
    batch_size,
    end_workers_with_command,
    setup_launcher,
    shutdown_launcher,
    threads_per_job,
)
from proxlearn.run.run_folder import nearest_existing_folder
from proxlearn.run.sweep_folder import DONE, SweepFolder
from proxlearn.sweeps.job import THREAD_LIMITS, SweepJob
from proxlearn.sweeps.plan import SweepPlan
from proxlearn.sweeps.progress import SweepProgress
from proxlearn.terminal.notice import notice
from proxlearn.train_session import echo

ROUNDS = 2
"""A launcher that gave up (a worker of joblib's was killed, a node went away) gets what it left undone once more."""
SAME_SIGNAL_SECONDS = 1.0
LAST_JOBS_SECONDS = 60.0
"""How long jobs that outlive their launcher are waited for, once they have been told to stop."""


def run_sweep(plan: SweepPlan, command: str) -> int:
    """The exit code: 0 if every job is finished, 1 if any is not, 130 or 143 if a signal ended the sweep."""
    sweep = plan.folder
    missing = plan.missing()
    sweep.create(command, plan.jobs)
    done = len(plan.configs) - len(missing) - sum(job.same_as is not None for job in plan.jobs)
    before = f", {done} finished before" if done else ""
    echo(f"proxlearn: a sweep of {len(plan.jobs)} jobs{before} -> {display_path(sweep.path)}\n")
    for job in plan.jobs:
        if job.error is not None:
            notice(f"job {job.number} ({job.title}) cannot be run: {job.error}")
    number = launch(plan, missing, command) if missing else None
    # matplotlib and pandas take a second to import: not before the jobs have ended.
    from proxlearn.views.sweep.sweep_views import render_sweep, summary

    render_sweep(sweep.path)
    overwrites = any(config.overwrite for config in plan.configs.values())
    echo(summary(sweep.path, continue_command(overwrites)))
    if number is not None:
        notice(f"the sweep was stopped; {continue_command(overwrites)} goes on")
        return 128 + number
    states = sweep.look()
    for state in states:
        job, made = state.job, state.run.step if state.run is not None else 0
        if state.state == DONE and job.same_as is None and job.steps is not None and made > job.steps:
            more = f"more than the {job.steps} asked for, and was taken as it is"
            notice(f"job {job.number} ({job.title}) had made {made} steps before, {more}")
    return 0 if all(state.state == DONE for state in states) else 1


def launch(plan: SweepPlan, missing: list[int], command: str) -> int | None:
    """Run the missing jobs; returns the signal that stopped them, if one did."""
    sweep, session = plan.folder, secrets.token_hex(4)
    setup_launcher(plan.master, sweep.path)
    for number in missing:
        sweep.forget(number)
        sweep.write_config(number, plan.configs[number])
    with stop_on_signal(sweep, session) as signals, SweepProgress(sweep, missing, session):
        for attempt in range(ROUNDS):
            left = [number for number in missing if not has_ended(sweep, number, session)]
            if not left or sweep.stop_requested(session):
                break
            if attempt:
                if not any(sweep.read_record(number) for number in missing):
                    # It has not begun at all: a wrong address, no permission. Once more would be no better.
                    break
                notice(f"starting the {len(left)} jobs that it left undone once more")
            launch_once(plan, left, session, command)
        wait_for_running_jobs(sweep, missing, session)
        shutdown_launcher(plan.master)
    sweep.clear_stop(session)
    return signals[0] if signals else None


def launch_once(plan: SweepPlan, numbers: list[int], session: str, command: str) -> None:
    """Hand jobs to the launcher; it may give up, which is said."""
    size = batch_size(plan.master, len(numbers))
    for start in range(0, len(numbers), size):
        batch = numbers[start : start + size]
        folders = tuple(folder for number in batch if (folder := plan.folder.run_folder(plan.jobs[number])))
        task = SweepJob(
            sweep=plan.folder.path,
            session=session,
            numbers=tuple(batch),
            folders=folders,
            existing=tuple(nearest_existing_folder(folder) for folder in folders),
            command=command,
            directory=Path.cwd(),
            threads=threads_per_job(plan.master, len(batch)),
            fail_fast=plan.fail_fast,
            thread_limits={name: os.environ[name] for name in THREAD_LIMITS if name in os.environ},
        )
        try:
            for ended in make_launcher(plan, task).launch(
                [folder_overrides(folder) for folder in folders], initial_job_idx=0
            ):
                # A failed job is in the table; what fails here is the way to it.
                _ = ended.return_value
        except Exception as error:
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            notice(f"the launcher gave up ({type(error).__name__}: {line:.300})")


def make_launcher(plan: SweepPlan, task: SweepJob) -> Launcher:
    """The chosen launcher, set up as Hydra's own sweeper would."""
    setup_globals()
    logging.getLogger("hydra_plugins").setLevel(logging.ERROR)
    context = HydraContext(config_loader=plan.loader, callbacks=Callbacks())
    chosen = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=plan.master)
    end_workers_with_command(plan.master, chosen)
    return chosen


def folder_overrides(folder: Path) -> list[str]:
    """What Hydra must know of a job: where its folder is. The job itself reads the config that was checked."""
    return [
        f"hydra.sweep.dir={quote_for_hydra(str(folder.parent))}",
        f"hydra.sweep.subdir={quote_for_hydra(folder.name)}",
    ]


def quote_for_hydra(text: str) -> str:
    """A text as Hydra's grammar reads it back."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def has_ended(sweep: SweepFolder, number: int, session: str) -> bool:
    record = sweep.read_record(number)
    return record is not None and record.session == session and record.state not in ("running", "waiting")


def wait_for_running_jobs(sweep: SweepFolder, numbers: list[int], session: str) -> None:
    """Jobs whose launcher gave up or was interrupted still store their checkpoints: wait for those."""
    end = time.monotonic() + LAST_JOBS_SECONDS
    waited = {state.job.number: state for state in sweep.look()}
    while time.monotonic() < end:
        alive = [n for n in numbers if not has_ended(sweep, n, session) and waited[n].state == "running"]
        if not alive:
            return
        time.sleep(0.5)
        waited = {state.job.number: state for state in sweep.look()}


@contextlib.contextmanager
def stop_on_signal(sweep: SweepFolder, session: str) -> Iterator[list[int]]:
    """SIGINT and SIGTERM stop the sweep, not only the job that they meet; a second one ends the command at once."""
    met: list[int] = []
    first = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if met:
            # `timeout` and some terminals send the same signal twice at once: that is one wish.
            if time.monotonic() - first < SAME_SIGNAL_SECONDS:
                return
            raise KeyboardInterrupt
        first = time.monotonic()
        met.append(number)
        sweep.request_stop(session)
        notice("stopping: running jobs store a checkpoint first (once more: at once)")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield met
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
