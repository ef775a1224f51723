"""The training loop of a run, with the observers that record its steps."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.sharding import Shards, undivided
from proxlearn.core.step import Info
from proxlearn.distributed.world import World
from proxlearn.loggers.logger import RunLogger
from proxlearn.printable_text import counted
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.experiment import Experiment, dtype_of
from proxlearn.run.loop_state import Observer, RunState
from proxlearn.run.metrics import MetricsLog
from proxlearn.run.observed_status import Outcome
from proxlearn.run.observers import (
    Callbacks,
    Checkpoints,
    FinalFigures,
    LoggerRows,
    MetricsRows,
    SessionOptions,
    ShardCheckpoints,
)
from proxlearn.run.progress import Progress
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.signals import Interrupted, StopRequest
from proxlearn.run.status_writer import Status
from proxlearn.training.iterate import iterate
from proxlearn.training.stepper import not_finite_error

SLOW_SECONDS = 0.5
"""Duration of a step in seconds above which a signal interrupts the step; a shorter step is completed."""

Steps = Iterator[tuple[PointCloud, Info | None]]


def training_loop(
    experiment: Experiment,
    checkpoint: Checkpoint,
    folder: RunFolder,
    status: Status,
    stop: StopRequest,
    journal: logging.Logger,
    logger: RunLogger,
    options: SessionOptions,
    world: World | None = None,
) -> int | None:
    """Run the steps that follow ``checkpoint``; return the signal that stopped them early, or None.

    A callback can also stop the steps; the run can then be continued, as after a signal. ``world`` contains the ranks
    that train the cloud together with this process, which is rank 0; it is None if this process trains alone.
    """
    shards = make_shards(experiment.config.N, world) if status.values["engine"] == "sharded" else None
    state = RunState(experiment, checkpoint, shards)
    fallback = experiment.config.device.fallback_dtype

    def report_switch(bad: PointCloud) -> None:
        journal.warning("%s: continuing in %s from step %d", not_finite_error(bad).problem, fallback, bad.step - 1)

    with (
        MetricsLog(folder.metrics) as log,
        Progress(experiment.steps, state.step, visible=options.progress) as progress,
    ):
        observers: tuple[Observer, ...] = (
            MetricsRows(folder, log),
            Checkpoints(folder, log, frozenset(status.values["protected"]), world),
            progress,
            FinalFigures(folder, status, stop),
            status,
            LoggerRows(folder, logger),
            *((Callbacks(options.callbacks),) if options.callbacks else ()),
        )
        for observer in observers:
            observer.start(state)
        if state.is_new:
            for observer in observers:
                observer.after_step(state)
        steps = _iterate(state, status.values["engine"], status.values["threads"], report_switch)
        first_step, sent_before = state.step, 0 if world is None else world.bytes_sent
        if world is not None:
            steps = until_any_stopped(steps, state.generator, world)
        else:
            steps = until_stopped(steps, state.generator, stop)
        for cloud, info in () if state.stop_requested else steps:
            state.update(cloud, info)
            del cloud, info
            for observer in observers:
                observer.after_step(state)
            state.release_info()
            if state.stop_requested:
                break
        if world is not None:
            sent, number = world.bytes_sent - sent_before, state.step - first_step
            journal.info("rank 0 of %d ranks sent %d bytes in %s", world.size, sent, counted(number, "step"))
        for observer in observers:
            observer.finish(state)
    return None if state.is_finished else stop.signal


def follow(state: RunState, folder: RunFolder, stop: StopRequest, threads: int, world: World) -> Outcome:
    """Run the steps on a rank other than 0; the rank computes a part of each step and writes a part of the cloud."""
    observer = ShardCheckpoints(folder, world)
    if state.is_new:
        observer.after_step(state)
    steps = _iterate(state, "sharded", threads)
    # Rank 0 computes the metrics, so the diagnostics, which contain the cloud before the step, are not kept here.
    for result in until_any_stopped(steps, state.generator, world):
        state.update(result[0], None)
        del result
        observer.after_step(state)
    observer.finish(state)
    return Outcome(folder.path, "finished" if state.is_last else "stopped", state.step, stop.signal)


def _iterate(
    state: RunState, engine: str, threads: int, on_switch: Callable[[PointCloud], None] = lambda bad: None
) -> Steps:
    """Return an iterator over the remaining steps of a run, starting from its current cloud."""
    experiment, fallback = state.experiment, state.experiment.config.device.fallback_dtype
    return iterate(
        experiment.source,
        state.cloud,
        experiment.hyper,
        generator=state.generator,
        until=experiment.steps,
        engine=engine,
        threads=threads,
        fallback=fallback and dtype_of(fallback),
        on_switch=on_switch,
        shards=state.shards,
    )


def make_shards(N: int, world: World | None) -> Shards:
    """Return the division of a cloud of N particles into blocks, and of the blocks among the ranks of ``world``."""
    return undivided(N) if world is None else Shards(N, world)


def _next_or_restore(
    steps: Steps, generator: torch.Generator, context: AbstractContextManager[object]
) -> tuple[PointCloud, Info | None] | None:
    """Return the result of the next step, computed inside ``context``, or None at the end or after an interruption.

    After an interruption, the generator has the state that it had before the step.
    """
    generator_state = generator.get_state()
    try:
        with context:
            return next(steps, None)
    except Interrupted:
        generator.set_state(generator_state)
        return None


def until_any_stopped(steps: Steps, generator: torch.Generator, world: World) -> Steps:
    """Yield the steps until a rank receives a signal, which stops all ranks, even in the middle of a step."""
    while not world.any_stop_request():
        result = _next_or_restore(steps, generator, nullcontext())
        if result is None:
            return
        yield result
        del result


def until_stopped(steps: Steps, generator: torch.Generator, stop: StopRequest) -> Steps:
    """Yield the steps until a signal arrives; restore the generator if the signal interrupts a slow step."""
    # The first step counts as slow, because it may compile for a minute.
    seconds = math.inf
    while stop.signal is None:
        start = time.monotonic()
        if seconds < SLOW_SECONDS:
            result = next(steps, None)
        else:
            result = _next_or_restore(steps, generator, stop.interruptible())
        if result is None:
            return
        seconds = time.monotonic() - start
        yield result
