"""Measurements of whole commands: compared with their recursions alone, and while other processes use the cores.

The effect of other processes is measured by two comparisons: two runs at once are compared with two runs one after the
other, and one run beside one busy loop per core is compared with the same run alone. The runs alternate, and the median
of the ratios is reported.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from proxlearn.bench.special_clouds import Recursions, experiment_of
from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.errors import RunError
from proxlearn.run import checkpoint
from proxlearn.run.experiment import Experiment
from proxlearn.run.train import train


def measure_end_to_end(config: TrainConfig, typical: PointCloud, steps: int, turns: int, bare: int) -> dict[str, Any]:
    """Measure the times of `train` and of the bare recursion over a run, from its first step to its last.

    The two measurements alternate, because the speed of the machine and the cost of a cloud change. After each of
    ``turns`` sessions of the run, ``bare`` recursions are timed from the newest cloud of the run, and the same number
    from the cloud ``typical``, from which special_clouds.py times a single recursion. The time of `train` includes the
    start and the end of every session, which an uninterrupted run has only once. All times are means.
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


DATASETS = ("banana", "wdbc")
"""The default datasets of `measure_company`. On banana, every pair of particles matters (see torch_floor.py); on wdbc,
almost no pair matters."""
STEPS = {"wdbc": 20_000, "diabetes": 3000, "banana": 1000, "twonorm": 500, "shd": 1500, "sine": 3000}
"""Number of recursions per command, chosen so that a command takes a few seconds."""
QUICK_STEPS = {dataset: steps // 10 for dataset, steps in STEPS.items()}
BUSY_LOOP = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
while True: pass
"""
"""A program that keeps a core busy until its standard input is closed, that is, until the bench ends or is killed."""
CommandOf = Callable[[Path], list[str]]
"""A function that returns the command of a run whose output goes to the given folder, which does not exist yet."""


def train_command(dataset: str, steps: int) -> CommandOf:
    """Return a function that maps a run folder to the command `proxlearn train` with default settings."""
    words = [sys.executable, "-m", "proxlearn", "train", f"dataset={dataset}", f"steps={steps}"]
    return lambda folder: [*words, f"hydra.run.dir={folder}"]


def measure_company(
    dataset: str, steps: int, turns: int, command_of: CommandOf, on_turn: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """Time a command in four situations, and return the settings, the median times and the median ratios.

    The situations are one run alone, two runs one after the other, two runs at once, and one run beside one busy loop
    per core. They are repeated ``turns`` times, and ``on_turn`` is called after each repetition.
    """
    seconds: dict[str, list[float]] = {"alone_s": [], "one_after_the_other_s": [], "at_once_s": [], "busy_s": []}
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as parent:
        folders = (Path(parent) / f"run{i}" for i in itertools.count())

        def commands(number: int) -> list[list[str]]:
            return [command_of(next(folders)) for _ in range(number)]

        # The first run compiles the passes, and the next one loads them.
        run_at_once(commands(1))
        for _ in range(turns):
            first, second = (run_at_once(commands(1)) for _ in range(2))
            seconds["alone_s"].append((first + second) / 2)
            seconds["one_after_the_other_s"].append(first + second)
            seconds["at_once_s"].append(run_at_once(commands(2)))
            with busy_loops(cores):
                seconds["busy_s"].append(run_at_once(commands(1)))
            on_turn()
    return {"dataset": dataset, "steps": steps, "turns": turns, "cores": cores, **summarise(seconds)}


def summarise(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return the medians of the times, and the medians of ratios between times that were measured in the same turn."""

    def ratio(numerator: str, denominator: str) -> float:
        return median(a / b for a, b in zip(seconds[numerator], seconds[denominator], strict=True))

    return {name: median(times) for name, times in seconds.items()} | {
        "at_once_over_one_after_the_other": ratio("at_once_s", "one_after_the_other_s"),
        "busy_over_alone": ratio("busy_s", "alone_s"),
    }


def run_at_once(commands: Sequence[list[str]]) -> float:
    """Run commands at the same time and return the seconds until all have ended; raise RunError if one fails."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        with processes(commands, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as started:
            codes = [process.wait() for process in started]
        seconds = time.perf_counter() - start
        for command, code in zip(commands, codes, strict=True):
            if code != 0:
                output.seek(0)
                last_line = output.read().decode(errors="replace").strip().rpartition("\n")[2]
                problem = f"`{' '.join(command[2:])}` ended with exit code {code} ({last_line})"
                raise RunError(problem, "run this command by itself to find the cause")
    return seconds


@contextlib.contextmanager
def busy_loops(number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes that each keep one core busy; they end when the ``with`` block or this process ends."""
    command = [sys.executable, "-c", BUSY_LOOP]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with processes([command] * number, **streams) as started:
        yield started


@contextlib.contextmanager
def processes(commands: Sequence[list[str]], **streams: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes; at the end of the ``with`` block, even after an exception, kill those that are still running."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            started.append(subprocess.Popen(command, **streams))
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
