"""The state of a run between two steps, and the interface of the observers that read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.sharding import Shards
from proxlearn.core.step import Info
from proxlearn.portability import return_freed_memory
from proxlearn.run.checkpoint import Checkpoint, Number
from proxlearn.run.experiment import Experiment
from proxlearn.run.metrics import Row, proximal_figures

LARGE = 2**15
"""Number of particles from which ``RunState.release_info`` has an effect."""


class RunState:
    """The newest cloud of a run, with everything that the next step and a checkpoint need."""

    def __init__(self, experiment: Experiment, checkpoint: Checkpoint, shards: Shards | None = None) -> None:
        """Create the state at the start of a session; the sharded engine divides the cloud as ``shards`` describes."""
        self.shards = shards
        self.experiment = experiment.to(checkpoint.cloud.theta.dtype)
        self.checkpoint = checkpoint
        """The state after the newest step, but with the ``generator`` and ``metrics`` of the start of the session."""
        self.info: Info | None = None
        """Diagnostics of the proximal step that led to the cloud; None if this session did not compute such a step."""
        self.row: Row | None = None
        """The row of metrics.csv for this step, or None if the step is not logged."""
        self.generator = torch.Generator()
        self.generator.set_state(checkpoint.generator)
        self.stop_requested = False
        """Whether an observer has requested that the session end at this step."""
        self.lacks_figures = False
        """Whether a signal interrupted the computation of the final scores."""
        self._first_step = checkpoint.cloud.step

    @property
    def cloud(self) -> PointCloud:
        return self.checkpoint.cloud

    @property
    def step(self) -> int:
        return self.checkpoint.cloud.step

    @property
    def is_last(self) -> bool:
        """Whether the run ends at this step."""
        return self.step >= self.experiment.steps

    @property
    def is_finished(self) -> bool:
        """Whether the run ends at this step and its final scores have been written."""
        return self.is_last and not self.lacks_figures

    @property
    def is_new(self) -> bool:
        """Whether no metrics of the run have been recorded yet."""
        return not self.checkpoint.metrics.size

    def update(self, cloud: PointCloud, info: Info | None) -> None:
        """Replace the state with the result of a step."""
        if cloud.theta.dtype != self.cloud.theta.dtype:
            self.experiment = self.experiment.to(cloud.theta.dtype)
            self.checkpoint = replace(self.checkpoint, switched_at=cloud.step)
        unmet = info is not None and not info.stopped
        self.checkpoint = replace(self.checkpoint, cloud=cloud, unmet=self.checkpoint.unmet + unmet, proximal=None)
        self.info, self.row = info, None

    def proximal_figures(self) -> Mapping[str, Number] | None:
        """Return the metrics of the step that led to the cloud, computed on demand, or None if they are unknown."""
        if self.checkpoint.proximal is None and self.step > self._first_step:
            self.checkpoint = replace(self.checkpoint, proximal=proximal_figures(self.info))
        return self.checkpoint.proximal

    def release_info(self) -> None:
        """Compute the metrics of the step and free its diagnostics, if the cloud is large and divided among ranks.

        The diagnostics contain the cloud before the step, and several ranks may run on one machine. Computing the
        metrics of a large cloud takes less time than a proximal step. For all other clouds, the metrics are computed
        only when they are needed.
        """
        if self.shards is None or self.shards.N < LARGE or self.info is None or not self.info.solution.rounds:
            return
        self.proximal_figures()
        self.info = None
        return_freed_memory()


class Observer:
    """The base class of a run's observers, which are called at the start of a session, after each step, and at the end.

    Step 0 of a new run counts as a step. Observers are not called at the end of a session that fails.
    """

    def start(self, state: RunState) -> None: ...

    def after_step(self, state: RunState) -> None: ...

    def finish(self, state: RunState) -> None: ...
