"""The observers that record the metrics, checkpoints and final scores of a run, and call its logger and callbacks.

The observers ``Progress`` and ``Status`` are in separate modules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.samples import Samples
from proxlearn.core.schedules import is_logged, is_stored
from proxlearn.core.step import Info
from proxlearn.distributed.world import World
from proxlearn.loggers.logger import RunLogger
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import result_files
from proxlearn.run.loop_state import Observer, RunState
from proxlearn.run.metrics import MetricsLog, Row, measure
from proxlearn.run.resume_point import final_row_step
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.signals import Interrupted, StopRequest
from proxlearn.run.status_writer import Status


class MetricsRows(Observer):
    """An observer that computes the metrics of the logged steps and appends them to metrics.csv."""

    def __init__(self, folder: RunFolder, log: MetricsLog) -> None:
        self.folder, self.log = folder, log
        self.parts: dict[str, Samples] = {}

    def start(self, state: RunState) -> None:
        # The rows are drawn once per session, because the choice of rows does not depend on the precision.
        self.parts = state.experiment.metric_samples
        lacks_final_row = self.log.start(state.checkpoint.metrics, final_row_step(state.step, state.experiment))
        if lacks_final_row:
            self._record(state, scheduled=False)
            # The row belongs to a step of an earlier session, so loggers read it from the file.
            state.row = None

    def after_step(self, state: RunState) -> None:
        scheduled = is_logged(state.step, state.experiment.config.log_every)
        if scheduled or state.is_last:
            self.folder.require_held()
            self._record(state, scheduled)

    def _record(self, state: RunState, scheduled: bool) -> None:
        experiment = state.experiment
        if next(iter(self.parts.values())).X.dtype != experiment.problem.dtype:
            self.parts = experiment.metric_samples
        state.row = measure(
            experiment.problem,
            self.parts,
            state.cloud,
            state.proximal_figures(),
            experiment.hyper,
            divided=state.shards is not None,
        )
        self.log.write(state.row, scheduled)


def is_stored_within(state: RunState) -> bool:
    """Return whether a checkpoint is written directly after this step; that of the last step is written at the end."""
    config = state.experiment.config
    return is_stored(state.step, config.checkpoint_every, config.films) and not state.is_last


def save_shards(world: World, folder: RunFolder, state: RunState) -> list[str]:
    """Write this rank's part of the cloud, and return the checksums of the parts of all ranks."""
    assert state.shards is not None, "a cloud of several ranks must be divided"
    return world.gather(checkpoints.save_shard(folder.checkpoints, state.checkpoint, state.shards.rows))


class ShardCheckpoints(Observer):
    """An observer for ranks other than 0; it writes the rank's part of each checkpoint."""

    def __init__(self, folder: RunFolder, world: World) -> None:
        self.folder, self.world = folder, world

    def after_step(self, state: RunState) -> None:
        if is_stored_within(state):
            save_shards(self.world, self.folder, state)

    def finish(self, state: RunState) -> None:
        save_shards(self.world, self.folder, state)


class Checkpoints(Observer):
    """An observer that stores the cloud at scheduled steps and at the end, and deletes obsolete checkpoints."""

    def __init__(
        self, folder: RunFolder, log: MetricsLog, protected: Collection[int], world: World | None = None
    ) -> None:
        """Create the observer; if several ranks write parts of the cloud, ``world`` is the world of these ranks."""
        self.folder, self.log, self.protected, self.world = folder, log, protected, world

    def after_step(self, state: RunState) -> None:
        if is_stored_within(state):
            self._save(state)

    def finish(self, state: RunState) -> None:
        self._save(state)

    def _save(self, state: RunState) -> None:
        self.folder.require_held()
        # A checkpoint refers to the rows before it, which must therefore be on disk first.
        self.log.sync()
        proximal = state.proximal_figures()
        generator = state.generator.get_state()
        checkpoint = replace(state.checkpoint, generator=generator, metrics=self.log.mark, proximal=proximal)
        shards = None
        if self.world is not None and self.world.size > 1:
            shards = save_shards(self.world, self.folder, state)
        checkpoints.save(self.folder.checkpoints, checkpoint, shards)
        config = state.experiment.config
        keep, every = config.keep_checkpoints, config.checkpoint_every
        checkpoints.prune(self.folder.checkpoints, state.step, keep, every, config.films, self.protected)


class FinalFigures(Observer):
    """An observer that writes accuracy.csv and confusion.csv for the newest cloud at the end of a session.

    Scoring all rows of a large table can take longer than a signal allows. A stopped session therefore scores only the
    rows of the logged metrics. If a signal arrives while the final scores are computed, the next session computes them.
    """

    def __init__(self, folder: RunFolder, status: Status, stop: StopRequest) -> None:
        self.folder, self.status, self.stop = folder, status, stop

    def finish(self, state: RunState) -> None:
        self.folder.require_held()
        experiment = state.experiment
        parts = experiment.parts if state.is_last else experiment.metric_samples
        most = experiment.config.metric_rows
        is_large = most is not None and any(len(samples) > most for samples in parts.values())
        divided = state.shards is not None
        try:
            with (
                self.status.writing_figures(state.checkpoint),
                self.stop.interruptible() if is_large else contextlib.nullcontext(),
            ):
                result_files.write_figures(self.folder, experiment.problem, parts, state.cloud, divided)
        except Interrupted:
            state.lacks_figures = True


class LoggerRows(Observer):
    """An observer that passes the rows of metrics.csv and the final state of the run to the run's logger."""

    def __init__(self, folder: RunFolder, logger: RunLogger) -> None:
        self.folder, self.logger = folder, logger

    def start(self, state: RunState) -> None:
        self.logger.begin(self.folder.metrics)

    def after_step(self, state: RunState) -> None:
        if state.row is not None:
            self.logger.log_row(state.row)

    def finish(self, state: RunState) -> None:
        self.logger.close("finished" if state.is_finished else "stopped")


@dataclass(frozen=True)
class StepEvent:
    """The argument of a callback: the state of a run after a step; the tensors must not be changed in place.

    Parameters
    ----------
    step : int
        Number of recursions so far; 0 for the initial cloud of a new run.
    cloud : PointCloud
        The cloud after the step.
    info : Info or None
        Diagnostics of the proximal step; None at step 0 and for other weight updates.
    row : dict or None
        The row of metrics.csv by column, or None if the step is not logged.

    Examples
    --------
    >>> import proxlearn as pl
    >>> steps = []
    >>> def watch(event):
    ...     steps.append(event.step)
    ...     return event.step == 3
    >>> run = pl.train("dataset=sine", "N=20", "steps=9", callbacks=[watch], verbose=False, plots=False)
    >>> steps
    [0, 1, 2, 3]
    """

    step: int
    """Number of recursions so far; 0 for the initial cloud of a new run."""
    cloud: PointCloud
    """The cloud after the step."""
    info: Info | None
    """Diagnostics of the proximal step; None at step 0 and for other weight updates."""
    row: Row | None
    """The row of metrics.csv by column, or None if the step is not logged."""


Callback = Callable[[StepEvent], object]
"""Function that is called after each step; the run stops if the function returns a true value."""


@dataclass(frozen=True)
class SessionOptions:
    """Options for observing a session from Python; they do not affect the result of the run."""

    callbacks: Sequence[Callback] = ()
    progress: bool = True
    """Whether progress is shown on stderr."""
    on_valid: Callable[[], None] | None = None
    """A function that is called once, when the settings, the data and the run folder have been checked."""


class Callbacks(Observer):
    """An observer that calls the user's callbacks after each step."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks

    def after_step(self, state: RunState) -> None:
        event = StepEvent(state.step, state.cloud, state.info, state.row)
        # Steps run with gradients disabled, but a callback may need gradients.
        with torch.enable_grad():
            for callback in self.callbacks:
                if callback(event):
                    state.stop_requested = True
