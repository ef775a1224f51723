"""The cost of a whole run beyond its recursions: metrics, checkpoints, status, progress, start and end."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from proxlearn.bench.recursion import Recursions, experiment_of
from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.run import checkpoint
from proxlearn.run.experiment import Experiment
from proxlearn.run.train import train


def measure_end_to_end(config: TrainConfig, typical: PointCloud, steps: int, turns: int, bare: int) -> dict[str, Any]:
    """Measure the times of `train` and of the bare recursion over a run, from its first step to its last.

    The two measurements alternate, because the speed of the machine and the cost of a cloud change: after each of
    ``turns`` sessions of the run, ``bare`` recursions are timed from its newest cloud, and as many from the cloud
    ``typical``, from which recursion.py times a single recursion. Every session has a start and an end, whereas an
    uninterrupted run has only one of each. All times are means, not minima.
    """
    train_seconds, bare_seconds, typical_seconds = 0.0, 0.0, 0.0
    experiment, _ = experiment_of(config)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        for turn in range(1, turns + 1):
            start = time.perf_counter()
            with contextlib.redirect_stderr(io.StringIO()):
                train(replace(config, steps=steps * turn // turns), folder, "proxlearn bench")
            train_seconds += time.perf_counter() - start
            newest = checkpoint.newest_valid(folder / "checkpoints")
            assert newest is not None, "every session of train stores a checkpoint"
            bare_seconds += _seconds(experiment, newest.cloud, turn, bare)
            typical_seconds += _seconds(experiment, typical, turn, bare)
    whole_ms = 1e3 * train_seconds / steps
    bare_ms, typical_ms = 1e3 * bare_seconds / (bare * turns), 1e3 * typical_seconds / (bare * turns)
    return {
        "dataset": config.dataset.name,
        "steps": steps,
        "turns": turns,
        "whole_ms": whole_ms,
        "bare_ms": bare_ms,
        "typical_ms": typical_ms,
        "ratio": whole_ms / bare_ms,
        "ratio_typical": whole_ms / typical_ms,
    }


def _seconds(experiment: Experiment, cloud: PointCloud, seed: int, number: int) -> float:
    """Return the time of ``number`` bare recursions from a cloud in seconds, after one untimed recursion."""
    recursions = Recursions(experiment, cloud, torch.Generator().manual_seed(seed))
    recursions()
    start = time.perf_counter()
    for _ in range(number):
        recursions()
    return time.perf_counter() - start
