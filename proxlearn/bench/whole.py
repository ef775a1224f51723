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

from proxlearn.bench.shapes import Runner, experiment_of
from proxlearn.run import checkpoint
from proxlearn.run.engine import make_step
from proxlearn.run.loop import train
from proxlearn.schema import TrainConfig


def measure_whole(config: TrainConfig, first: int, steps: int, turns: int) -> dict[str, Any]:
    """`train`, as a user has it, against the bare recursion, ``steps`` of each at a time from the same clouds.

    They take turns, because the machine changes its pace. Every session of ``train`` pays for its start and end, which
    a run in one piece pays once.
    """
    whole, bare = [], []
    experiment, _ = experiment_of(config)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        for turn in range(turns + 1):
            start = time.perf_counter()
            with contextlib.redirect_stderr(io.StringIO()):
                train(replace(config, steps=first + turn * steps), folder, "proxlearn bench")
            whole.append(time.perf_counter() - start)
            newest = checkpoint.newest_valid(folder / "checkpoints", lambda path, why: None, lambda found: None)
            assert newest is not None, "train has just stored one"
            step = make_step("fused", experiment, torch.get_num_threads())
            runner = Runner(step, newest.cloud, torch.Generator().manual_seed(turn))
            runner()
            start = time.perf_counter()
            for _ in range(steps):
                runner()
            bare.append(time.perf_counter() - start)
    # The first session has another number of steps, and its turn was for warming up.
    ratio = min(whole[1:]) / min(bare[1:])
    of_step = {"whole_ms": 1e3 * min(whole[1:]) / steps, "bare_ms": 1e3 * min(bare[1:]) / steps}
    return {
        "dataset": config.dataset.name,
        "from_step": first,
        "steps": steps,
        "turns": turns,
        **of_step,
        "ratio": ratio,
    }
