"""``proxlearn train -m``: run the jobs that are not finished, draw the sweep, and report the state of every job."""

from __future__ import annotations

from pathlib import Path

from proxlearn.errors import continue_command
from proxlearn.files.safe_read import display_path
from proxlearn.jobs.job import Job, JobStopped
from proxlearn.jobs.launchers import HydraLauncher
from proxlearn.jobs.records import DONE
from proxlearn.jobs.runner import run_jobs
from proxlearn.run.device import check_memory
from proxlearn.run.sweep_folder import SweepFolder
from proxlearn.sweeps.plan import SweepPlan
from proxlearn.terminal.notice import notice
from proxlearn.train_and_draw import echo, train_and_draw

PRELOAD = (
    "proxlearn.sweeps.launch",
    "proxlearn.run.train",
    "proxlearn.views.run.run_views",
    "proxlearn.core.fused.fused_step",
)
"""Modules imported once, so that a job starts in a fraction of a second."""


def train_job(sweep: Path, number: int, folder: Path, command: str) -> None:
    """Train the run of job ``number`` in ``folder``, with the config that was checked before the sweep began."""
    config = SweepFolder(sweep).read_config(number)
    check_memory(config)
    outcome = train_and_draw(config, folder, command)
    if outcome.signal is not None:
        raise JobStopped(f"stopped at step {outcome.step}", outcome.signal)


def run_sweep(plan: SweepPlan, command: str) -> int:
    """Run the sweep; return 0 if every job is finished, 1 if any is not, or 130 or 143 if a signal stopped it."""
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
    # Imported after the jobs have ended, because matplotlib and pandas take a second to import.
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
            more = f"more than the requested {job.steps}; its result is used unchanged"
            notice(f"job {job.number} ({job.title}) already has {steps} steps, {more}")
    return 0 if all(state.state == DONE for state in states) else 1


def launch(plan: SweepPlan, numbers: list[int], command: str) -> int | None:
    """Run the jobs with these numbers; return the signal that stopped them, if one did."""
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
