"""The loop: from a config and a folder to a trained cloud, readable from top to bottom."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.core.thread_limit import usable_threads
from proxlearn.errors import SAME_COMMAND, InputError, RunError, StoppedBySignal, continue_command
from proxlearn.files.atomic import CONTINUES_FROM_CHECKPOINT, disk_errors_as_run_error
from proxlearn.loggers.logger import RunLogger, check_logger
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import result_files
from proxlearn.run.checkpoint import Checkpoint, Number
from proxlearn.run.engine import choose_engine
from proxlearn.run.experiment import (
    Experiment,
    build_experiment,
    dtype_of,
    first_checkpoint,
)
from proxlearn.run.lock import FolderLock, FolderLost
from proxlearn.run.log_schedule import is_logged, is_stored
from proxlearn.run.logger_session import logger_session
from proxlearn.run.metrics import MetricsLog, Row, measure, proximal_figures
from proxlearn.run.overwrite import recover, staged_run, swap_in
from proxlearn.run.ownership import refuse_table_inside, require_run_or_empty
from proxlearn.run.previous_session import retention_settings
from proxlearn.run.progress import Progress
from proxlearn.run.resume_point import ResumePoints, convert_metrics, final_row_step, load_resume_point
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.run_log import open_run_log
from proxlearn.run.selection import run_selection, with_stored_selection
from proxlearn.run.signals import Interrupted, StopRequest
from proxlearn.run.status import Status
from proxlearn.training.memory import out_of_memory_as_run_error
from proxlearn.training.stepper import Stepper, not_finite_error

SLOW_SECONDS = 0.5
"""A step that takes longer is not waited for when a signal comes."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path
    state: str
    step: int
    signal: int | None = None
    already_finished: bool = False
    longest_steps: int = 0
    """The largest number of steps that the run was ever asked for."""


def train(config: TrainConfig, path: Path, command: str) -> Outcome:
    """Run, continue or extend the run that ``config`` describes, in the folder ``path``; one process at a time."""
    try:
        return _train(config, path, command)
    except Interrupted as stopped:
        # The new run of an overwrite has not been placed by then.
        then = (
            f"{SAME_COMMAND} begins again: the old run is as it was" if config.overwrite else f"{SAME_COMMAND} goes on"
        )
        raise StoppedBySignal(stopped.signal, "stopped before the first step of this session", then) from stopped


def _train(config: TrainConfig, path: Path, command: str) -> Outcome:
    folder = RunFolder(path)
    check_logger(config.logger)
    again = (
        f"{SAME_COMMAND} begins again: the old run is as it was"
        if config.overwrite
        else f"{SAME_COMMAND} {CONTINUES_FROM_CHECKPOINT}"
    )
    with StopRequest() as stop, contextlib.ExitStack() as held:
        with disk_errors_as_run_error(path, again):
            # Before the lock, which is a file too.
            require_run_or_empty(path)
            refuse_table_inside(config.dataset.path, path)
            path.mkdir(parents=True, exist_ok=True)
            folder.refuse_links()
            lock = held.enter_context(FolderLock(path))
            folder = RunFolder(path, lock.require_current)
            recover(folder)
            # The old run stays until the new one is known to be possible: it is made in a folder of its own first.
            made = held.enter_context(staged_run(folder)) if config.overwrite else folder
            made.check_same_run(config)
            earlier = made.read_previous_session()
        with stop.interruptible():
            experiment = build_experiment(config)
        # Before anything is called finished: old figures must not pass for those of a file that was edited since.
        if earlier.data_sha256 not in (None, experiment.prepared.table.sha256):
            raise InputError(f"the data of {path} has changed since it began", "restore it, or set overwrite=true")
        with disk_errors_as_run_error(path, again):
            known = with_stored_selection(experiment, made)
            ResumePoints(made, known or experiment, earlier).check_settings(known is not None)
        if known is not None and earlier.finished_at is not None and earlier.finished_at >= known.steps:
            with disk_errors_as_run_error(path):
                result_files.repair_model(made, known.prepared, known.problem.neuron.name)
            return Outcome(path, "finished", earlier.finished_at, already_finished=True, longest_steps=earlier.steps)
        engine = choose_engine(experiment, earlier.engine)
        # The order of a sum depends on the number of threads: a run keeps the number it began with.
        threads = earlier.threads or config.threads or torch.get_num_threads()
        torch.set_num_threads(usable_threads(threads))
        warnings = [f"took the folder over from {lock.left_by}, which is gone"] if lock.left_by else []
        if config.threads not in (None, threads):
            warnings.append(f"the run keeps the {threads} threads it began with: its bits depend on them")
        with disk_errors_as_run_error(path, again):
            experiment = known or run_selection(experiment, made, threads, stop)
        now = load_resume_point(made, experiment, earlier, warnings.append) or first_checkpoint(experiment)
        if experiment.steps < earlier.steps:
            warnings.append(
                f"the run was on its way to {earlier.steps} steps and now ends at {experiment.steps};"
                f" steps={earlier.steps} goes on to there, with the result of an uninterrupted run"
            )
        with (
            disk_errors_as_run_error(path, f"{continue_command(config.overwrite)} {CONTINUES_FROM_CHECKPOINT}"),
            torch.no_grad(),
        ):
            stop.check()
            lock.require_current()
            if made is not folder:
                with disk_errors_as_run_error(path, again):
                    write_first_state(
                        experiment, now, made, Status(made, experiment, engine, threads, command, earlier)
                    )
                    lock.require_current()
                    swap_in(folder)
                now = load_resume_point(folder, experiment, earlier, warnings.append) or now
                earlier = replace(earlier, retention=retention_settings(config))
            status = Status(folder, experiment, engine, threads, command, earlier)
            return run_session(experiment, now, folder, status, stop, warnings)


def write_first_state(experiment: Experiment, now: Checkpoint, folder: RunFolder, status: Status) -> None:
    """A run of no steps yet: all that a session needs to go on from the checkpoint of step 0."""
    folder.create(experiment.config)
    result_files.write_model(folder, experiment.prepared, experiment.problem.neuron.name)
    result_files.write_points(folder, experiment.prepared)
    with MetricsLog(folder.metrics) as metrics:
        metrics.start(now.metrics, None)
        metrics.write(measure(experiment.problem, experiment.test, now.cloud, None, experiment.plan))
        metrics.sync()
        checkpoints.save(folder.checkpoints, replace(now, metrics=metrics.mark))
    status.write("running", now)


def run_session(
    experiment: Experiment, now: Checkpoint, folder: RunFolder, status: Status, stop: StopRequest, warnings: list[str]
) -> Outcome:
    """One process's share of a run, with its log and its status whatever happens."""
    folder.create(experiment.config)
    foreign = MetricsLog(folder.metrics).foreign_lines(now.metrics)
    now = convert_metrics(folder, experiment, now)
    journal = open_run_log(folder.log)
    try:
        for warning in warnings:
            journal.warning(warning)
        if foreign:
            count = "a line" if len(foreign) == 1 else f"{len(foreign)} lines"
            journal.warning("metrics.csv ends with %s that the run did not write, now in train.log only", count)
            for line in foreign:
                journal.info("no row of metrics.csv: %s", line)
        result_files.write_model(folder, experiment.prepared, experiment.problem.neuron.name)
        result_files.write_points(folder, experiment.prepared)
        status.write("running", now)
        journal.info("%s: from step %d to %d", status.values["command"], now.cloud.step, experiment.steps)
        with out_of_memory_as_run_error(), logger_session(experiment.config.logger, folder, journal.warning) as logger:
            signal = training_loop(experiment, now, folder, status, stop, journal, logger)
        journal.info("%s at step %d", status.values["state"], status.values["step"])
    except FolderLost:
        # Its log may be another run's by now, as its status is.
        raise
    except BaseException as error:
        # On a full disk neither of these may hide what happened; a traceback is for the log, and for surprises only.
        with contextlib.suppress(OSError, FolderLost):
            status.write("failed", error=str(error) or type(error).__name__)
        journal.info("failed: %s", error, exc_info=None if isinstance(error, OSError | RunError) else error)
        raise
    finally:
        for handler in journal.handlers:
            with contextlib.suppress(OSError):
                handler.close()
    return Outcome(folder.path, status.values["state"], status.values["step"], signal)


def training_loop(
    experiment: Experiment,
    now: Checkpoint,
    folder: RunFolder,
    status: Status,
    stop: StopRequest,
    journal: logging.Logger,
    logger: RunLogger,
) -> int | None:
    """The recursions from ``now`` to the last step; returns the signal that stopped them early, if one did."""
    config, steps = experiment.config, experiment.steps
    engine, threads = status.values["engine"], status.values["threads"]
    protected = frozenset(status.values["protected"])
    experiment = experiment.to(now.cloud.theta.dtype)
    generator = torch.Generator(experiment.device)
    generator.set_state(now.generator)
    fallback = config.device.fallback_dtype

    def switching(bad: PointCloud) -> None:
        journal.warning("%s: going on in %s from step %d", not_finite_error(bad).problem, fallback, bad.step - 1)

    advance = Stepper(
        experiment.source, experiment.plan, engine, threads, generator, fallback and dtype_of(fallback), switching
    )
    with MetricsLog(folder.metrics) as metrics, Progress(steps, now.cloud.step) as progress:

        def record(row: Row, scheduled: bool = True) -> None:
            folder.require_held()
            metrics.write(row, scheduled)
            logger.log_row(row)

        def save() -> None:
            folder.require_held()
            metrics.sync()
            moment = replace(now, generator=generator.get_state(), metrics=metrics.mark, proximal=proximal())
            checkpoints.save(folder.checkpoints, moment)
            keep, every = config.keep_checkpoints, config.checkpoint_every
            checkpoints.prune(folder.checkpoints, now.cloud.step, keep, every, config.films, protected)

        def proximal() -> Mapping[str, Number] | None:
            """The figures of the step that led to ``now``, computed where they are stored or logged only."""
            nonlocal now
            if now.proximal is None and now.cloud.step > first:
                now = replace(now, proximal=proximal_figures(last))
            return now.proximal

        first, last = now.cloud.step, None
        lacks_closing_row = metrics.start(now.metrics, final_row_step(now.cloud.step, experiment))
        if lacks_closing_row:
            row = measure(experiment.problem, experiment.test, now.cloud, now.proximal, experiment.plan)
            metrics.write(row, scheduled=False)
        logger.begin(folder.metrics)
        if not metrics.mark.size:
            record(measure(experiment.problem, experiment.test, now.cloud, None, experiment.plan))
            save()
        seconds = math.inf
        while now.cloud.step < steps and stop.signal is None:
            start = time.monotonic()
            if seconds < SLOW_SECONDS:
                cloud, info = advance(now.cloud)
            else:
                # The first step may compile for a minute, and a large cloud's takes as long: such a step is given up.
                state = generator.get_state()
                try:
                    with stop.interruptible():
                        cloud, info = advance(now.cloud)
                except Interrupted:
                    generator.set_state(state)
                    break
            seconds = time.monotonic() - start
            if cloud.theta.dtype != now.cloud.theta.dtype:
                experiment, now = experiment.to(cloud.theta.dtype), replace(now, switched_at=cloud.step)
            unmet = info is not None and not info.stopped
            now, last = replace(now, cloud=cloud, unmet=now.unmet + unmet, proximal=None), info
            scheduled = is_logged(cloud.step, config.log_every)
            if scheduled or cloud.step == steps:
                row = measure(experiment.problem, experiment.test, cloud, proximal(), experiment.plan)
                record(row, scheduled)
                progress.metrics(row)
            if is_stored(cloud.step, config.checkpoint_every, config.films) and cloud.step < steps:
                save()
            progress.advance(cloud.step)
            status.running(now)
        save()
        folder.require_held()
        with status.writing_figures(now):
            result_files.write_figures(folder, experiment.problem, experiment.test, now.cloud)
        stopped = now.cloud.step < steps
        status.write("stopped" if stopped else "finished", now)
        logger.close(status.values["state"])
    return stop.signal if stopped else None
