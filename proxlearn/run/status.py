"""status.json: what a run is doing, for whoever looks from outside."""

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
from proxlearn.config.schema import digest, trajectory
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.experiment import Experiment
from proxlearn.run.metrics_version import VERSION
from proxlearn.run.previous_session import PreviousSession, retention_settings
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.step_rate import StepRate

EVERY_SECONDS = 2.0


class Status:
    """Kept in memory, written whole at most every two seconds while running."""

    def __init__(
        self,
        folder: RunFolder,
        experiment: Experiment,
        engine: str,
        threads: int,
        command: str,
        earlier: PreviousSession,
    ) -> None:
        # Before the session writes its first checkpoint.
        protected = folder.protected_steps(experiment.config, earlier)
        self._folder = folder
        self._before, self._start = earlier.seconds, time.monotonic()
        self._written = self._start
        self._pace: StepRate | None = None
        self.values: dict[str, Any] = {
            "state": "running",
            "step": 0,
            "steps": experiment.steps,
            "longest_steps": max(experiment.steps, earlier.steps),
            "seconds": earlier.seconds,
            "rate": None,
            "dtype": experiment.config.device.dtype,
            "switched_at": None,
            "unmet": 0,
            "figures_step": earlier.figures_step,
            # What the config leaves open; it stays null there, because the hash of a run is that of its config.
            "selected": {name: getattr(experiment.settings, name) for name in experiment.config.selected},
            "device": experiment.device.type,
            "engine": engine,
            "threads": threads,
            "metrics_version": VERSION,
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

    def write(self, state: str, now: Checkpoint | None = None, error: str | None = None) -> None:
        self._written = time.monotonic()
        self.values |= {"state": state, "error": error, "seconds": round(self._before + self._written - self._start, 3)}
        if self._pace is not None and self._pace.rate:
            self.values["rate"] = round(self._pace.rate, 3)
        if now is not None:
            dtype = str(now.cloud.theta.dtype).removeprefix("torch.")
            self.values |= {"step": now.cloud.step, "unmet": now.unmet, "switched_at": now.switched_at, "dtype": dtype}
        self._folder.write_status(self.values)

    @contextmanager
    def writing_figures(self, now: Checkpoint) -> Iterator[None]:
        """While accuracy.csv and confusion.csv are replaced, nothing is said of their step: a kill may leave either."""
        self.values["figures_step"] = None
        self.write("running", now)
        yield
        self.values["figures_step"] = now.cloud.step

    def running(self, now: Checkpoint) -> None:
        if self._pace is None:
            self._pace = StepRate(now.cloud.step)
        self._pace.advance(now.cloud.step)
        if time.monotonic() - self._written > EVERY_SECONDS:
            self.write("running", now)
