"""The writer of status.json, from which other processes read the state of a run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from proxlearn import __version__
from proxlearn.config.run_name import digest, trajectory
from proxlearn.core.cloud import PointCloud
from proxlearn.core.schedules import hyper_of_last_step
from proxlearn.core.step import REVISION
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.experiment import Experiment
from proxlearn.run.loop_state import Observer, RunState
from proxlearn.run.metrics import VERSION
from proxlearn.run.previous_session import PreviousSession, retention_settings
from proxlearn.run.progress import StepRate
from proxlearn.run.run_folder import RunFolder

EVERY_SECONDS = 2.0


class Status(Observer):
    """An observer that writes status.json, at most every two seconds during the run."""

    def __init__(
        self,
        folder: RunFolder,
        experiment: Experiment,
        engine: str,
        threads: int,
        command: str,
        previous: PreviousSession,
        ranks: int = 1,
    ) -> None:
        # The protected steps are determined before the session writes its first checkpoint.
        protected = folder.protected_steps(experiment.config, previous)
        self._folder, self._hyper = folder, experiment.hyper
        self._previous_seconds, self._start = previous.seconds, time.monotonic()
        self._written = self._start
        self._step_rate: StepRate | None = None
        self.values: dict[str, Any] = {
            "state": "running",
            "step": 0,
            "steps": experiment.steps,
            "longest_steps": max(experiment.steps, previous.steps),
            "seconds": previous.seconds,
            "rate": None,
            "dtype": experiment.config.device.dtype,
            "switched_at": None,
            "unmet": 0,
            # beta epsilon / h of the newest step; null if it is not known yet, and without a proximal step.
            "kappa": None,
            "figures_step": previous.figures_step,
            # The selected values; they stay null in the config, whose hash identifies the run.
            "selected": {name: getattr(experiment.settings, name) for name in experiment.config.selected},
            "device": experiment.device.type,
            "engine": engine,
            "threads": threads,
            "ranks": ranks,
            "metrics_version": VERSION,
            "revision": REVISION,
            "run": experiment.identity,
            "settings": trajectory(experiment.config),
            "settings_sha256": digest(experiment.config),
            "retention": retention_settings(experiment.config),
            "protected": sorted(protected),
            "data_sha256": experiment.prepared.table.sha256,
            "versions": {
                "proxlearn": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
            "command": command,
            "pid": os.getpid(),
            "host": platform.node(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "error": None,
        }

    def write(self, state: str, checkpoint: Checkpoint | None = None, error: str | None = None) -> None:
        self._written = time.monotonic()
        self.values |= {
            "state": state,
            "error": error,
            "seconds": round(self._previous_seconds + self._written - self._start, 3),
        }
        if self._step_rate is not None and self._step_rate.rate:
            self.values["rate"] = round(self._step_rate.rate, 3)
        if checkpoint is not None:
            dtype = str(checkpoint.cloud.theta.dtype).removeprefix("torch.")
            self.values |= {
                "step": checkpoint.cloud.step,
                "unmet": checkpoint.unmet,
                "switched_at": checkpoint.switched_at,
                "dtype": dtype,
                "kappa": self._kappa(checkpoint.cloud),
            }
        self._folder.write_status(self.values)

    def _kappa(self, cloud: PointCloud) -> float | None:
        if self._hyper.weights != "proximal" or (self._hyper.epsilon_quantile is not None and cloud.epsilon is None):
            return None
        return hyper_of_last_step(self._hyper, cloud).kappa

    @contextmanager
    def writing_figures(self, checkpoint: Checkpoint) -> Iterator[None]:
        """Set ``figures_step`` to null while the score files are replaced and may be inconsistent."""
        self.values["figures_step"] = None
        self.write("running", checkpoint)
        yield
        self.values["figures_step"] = checkpoint.cloud.step

    def after_step(self, state: RunState) -> None:
        if self._step_rate is None:
            self._step_rate = StepRate(state.step)
        self._step_rate.advance(state.step)
        if time.monotonic() - self._written > EVERY_SECONDS:
            self.write("running", state.checkpoint)

    def finish(self, state: RunState) -> None:
        self.write("finished" if state.is_finished else "stopped", state.checkpoint)
