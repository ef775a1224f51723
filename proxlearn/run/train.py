"""Train in a run folder: lock it, load the data, find the point to continue from, and start a session.

A new run, a run that is continued and one that is extended follow the same path.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import torch

from proxlearn.config.schema import TrainConfig
from proxlearn.core.thread_limit import usable_threads
from proxlearn.errors import SAME_COMMAND, InputError, StoppedBySignal, continue_command
from proxlearn.files.atomic import CONTINUES_FROM_CHECKPOINT, disk_errors_as_run_error
from proxlearn.loggers.logger import check_logger
from proxlearn.run import result_files
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.run.lock import FolderLock
from proxlearn.run.outcome import Outcome
from proxlearn.run.overwrite import recover, staged_run, swap_in
from proxlearn.run.ownership import refuse_table_inside, require_run_or_empty
from proxlearn.run.previous_session import retention_settings
from proxlearn.run.resume_point import ResumePoints, load_resume_point
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.selection import run_selection, with_stored_selection
from proxlearn.run.session import run_session, write_first_state
from proxlearn.run.signals import Interrupted, StopRequest
from proxlearn.run.status import Status
from proxlearn.training.engine import choose_engine

OLD_RUN_UNCHANGED = f"{SAME_COMMAND} begins again: the old run is unchanged"


def train(config: TrainConfig, path: Path, command: str) -> Outcome:
    """Start, continue or extend the run of ``config`` in the folder ``path``; one process at a time."""
    try:
        with StopRequest() as stop, contextlib.ExitStack() as resources:
            return _train(config, path, command, stop, resources)
    except Interrupted as stopped:
        # The new run of an overwrite is not in its place before the first step.
        remedy = OLD_RUN_UNCHANGED if config.overwrite else f"{SAME_COMMAND} continues"
        raise StoppedBySignal(stopped.signal, "stopped before the first step of this session", remedy) from stopped


def _train(
    config: TrainConfig, path: Path, command: str, stop: StopRequest, resources: contextlib.ExitStack
) -> Outcome:
    check_logger(config.logger)
    remedy = OLD_RUN_UNCHANGED if config.overwrite else f"{SAME_COMMAND} {CONTINUES_FROM_CHECKPOINT}"
    with disk_errors_as_run_error(path, remedy):
        folder, lock = _lock_folder(config, path, resources)
        # The old run is kept until the new one can start: the new one is prepared in a folder of its own first.
        work = resources.enter_context(staged_run(folder)) if config.overwrite else folder
        work.check_same_run(config)
        previous = work.read_previous_session()
    with stop.interruptible():
        experiment = build_experiment(config)
    # Checked before the run is reported as finished: its figures do not belong to a file that was edited since.
    if previous.data_sha256 not in (None, experiment.prepared.table.sha256):
        raise InputError(f"the data of {path} has changed since the run started", "restore it, or set overwrite=true")
    with disk_errors_as_run_error(path, remedy):
        complete = with_stored_selection(experiment, work)
        ResumePoints(work, complete or experiment, previous).check_settings(complete is not None)
    if complete is not None and previous.finished_at is not None and previous.finished_at >= complete.steps:
        with disk_errors_as_run_error(path):
            result_files.repair_model(work, complete.prepared, complete.problem.neuron.name)
        return Outcome(path, "finished", previous.finished_at, already_finished=True, longest_steps=previous.steps)
    engine = choose_engine(
        experiment.problem.neuron,
        experiment.device.type,
        solver=config.solver,
        compile=config.compile,
        previous=previous.engine,
    )
    # The order of a sum depends on the number of threads: a run keeps the number it began with.
    threads = previous.threads or config.threads or torch.get_num_threads()
    torch.set_num_threads(usable_threads(threads))
    warnings = [f"took the folder over from {lock.left_by}, which is gone"] if lock.left_by else []
    if config.threads not in (None, threads):
        warnings.append(f"the run keeps the {threads} threads it began with: its result depends on their number")
    with disk_errors_as_run_error(path, remedy):
        experiment = complete or run_selection(experiment, work, threads, stop)
    checkpoint = load_resume_point(work, experiment, previous, warnings.append) or first_checkpoint(experiment)
    if experiment.steps < previous.steps:
        warnings.append(
            f"the run was set to {previous.steps} steps and now ends at {experiment.steps};"
            f" steps={previous.steps} continues it to there, with the result of an uninterrupted run"
        )
    with (
        disk_errors_as_run_error(path, f"{continue_command(config.overwrite)} {CONTINUES_FROM_CHECKPOINT}"),
        torch.no_grad(),
    ):
        stop.check()
        lock.require_current()
        if work is not folder:
            with disk_errors_as_run_error(path, remedy):
                first_status = Status(work, experiment, engine, threads, command, previous)
                write_first_state(experiment, checkpoint, work, first_status)
                lock.require_current()
                swap_in(folder)
            checkpoint = load_resume_point(folder, experiment, previous, warnings.append) or checkpoint
            previous = replace(previous, retention=retention_settings(config))
        status = Status(folder, experiment, engine, threads, command, previous)
        return run_session(experiment, checkpoint, folder, status, stop, warnings)


def _lock_folder(config: TrainConfig, path: Path, resources: contextlib.ExitStack) -> tuple[RunFolder, FolderLock]:
    """Return the run folder, created if missing and held by this process, without traces of a killed overwrite."""
    # Checked before the lock is taken, because the lock is a file too.
    require_run_or_empty(path)
    refuse_table_inside(config.dataset.path, path)
    path.mkdir(parents=True, exist_ok=True)
    RunFolder(path).refuse_links()
    lock = resources.enter_context(FolderLock(path))
    folder = RunFolder(path, lock.require_current)
    recover(folder)
    return folder, lock
