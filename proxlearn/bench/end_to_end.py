"""What a whole run pays beside its recursions: metrics, checkpoints, status, progress, start and end."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from proxlearn.bench.recursion import StepTimer, experiment_of
from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.run import checkpoint
from proxlearn.run.engine import make_step
from proxlearn.run.experiment import Experiment
from proxlearn.run.training_loop import train


def measure_end_to_end(config: TrainConfig, typical: PointCloud, steps: int, turns: int, bare: int) -> dict[str, Any]:
    """`train`, as a user has it, against the bare recursion, over a run from its first step to its last.

    They take turns, because the machine changes its pace and a cloud its cost: after each of ``turns`` sessions of the
    run, ``bare`` recursions from its newest cloud, and as many from the ``typical`` one, which the table of shapes is
    about. Every session pays for a start and an end, which a run in one piece pays once. All figures are means: what a
    run pays, not its luckiest moments.
    """
    of_train, of_bare, of_typical = 0.0, 0.0, 0.0
    experiment, _ = experiment_of(config)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        for turn in range(1, turns + 1):
            start = time.perf_counter()
            with contextlib.redirect_stderr(io.StringIO()):
                train(replace(config, steps=steps * turn // turns), folder, "proxlearn bench")
            of_train += time.perf_counter() - start
            newest = checkpoint.newest_valid(folder / "checkpoints", lambda path, why: None, lambda found: None)
            assert newest is not None, "train has just stored one"
            of_bare += _seconds(experiment, newest.cloud, turn, bare)
            of_typical += _seconds(experiment, typical, turn, bare)
    whole_ms = 1e3 * of_train / steps
    bare_ms, typical_ms = 1e3 * of_bare / (bare * turns), 1e3 * of_typical / (bare * turns)
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


def _seconds(experiment: Experiment, cloud: PointCloud, seed: int, recursions: int) -> float:
    """Of so many bare recursions from a cloud."""
    step = make_step("fused", experiment, torch.get_num_threads())
    runner = StepTimer(step, cloud, torch.Generator().manual_seed(seed))
    runner()
    start = time.perf_counter()
    for _ in range(recursions):
        runner()
    return time.perf_counter() - start
