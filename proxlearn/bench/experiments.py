"""Estimate the duration of each complete experiment of the paper from measurements at selected clouds of a run.

The cost of a recursion changes during a run: neurons saturate, and particles move apart. The compiled engine runs the
experiment up to a maximum k and keeps the clouds at log-spaced values of k. The time of a recursion is measured at each
of these clouds and weighted by the number of recursions that the cloud represents: between two clouds, the time is
assumed to be linear in k, and the last cloud represents all later recursions. The time for metrics and files is not
included (see whole_commands.py).

At every cloud, three programs are timed in turn: *ours*, the compiled engine; *literal*, Algorithms 1 and 2 as printed,
in float64; and the *floor* (torch_floor.py). The median over the turns is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from proxlearn.bench.special_clouds import experiment_of, literal_of
from proxlearn.bench.timing import Call
from proxlearn.bench.torch_floor import KernelUse, floor_of, kernel_use
from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.run.experiment import Experiment
from proxlearn.training.stepper import Stepper

LONGEST_STRETCH = 500
"""Largest number of consecutive recursions that are timed together."""


@dataclass(frozen=True)
class Effort:
    """The number and the duration of the measurements of one experiment."""

    largest_k: int = 5000
    run_seconds: float = 60.0
    """Time limit of the run, in seconds; clouds that the run does not reach within this time are not measured."""
    turns: int = 7
    literal_turns: int = 3
    stretch_seconds: float = 0.2
    """Duration of a timed stretch of recursions, in seconds. A stretch has several recursions, because not every
    recursion rebuilds the neighbour list.
    """


QUICK = Effort(largest_k=1000, run_seconds=5.0, turns=2, literal_turns=1, stretch_seconds=0.05)


def log_spaced(steps: int, largest_k: int) -> list[int]:
    """Return 0, 1, 2, 5, 10, 20, ... and the last k, which is the smaller of ``largest_k`` and ``steps`` - 1."""
    last = max(0, min(steps - 1, largest_k))
    ks = {0, last} | {digit * 10**power for power in range(len(str(last))) for digit in (1, 2, 5)}
    return sorted(k for k in ks if k <= last)


def weights_of_clouds(ks: Sequence[int], steps: int) -> list[float]:
    """Return, for the cloud at each k in ``ks``, how many of the ``steps`` recursions it represents (ks[0] = 0).

    The time of a recursion is assumed to be linear in k between two clouds (trapezoidal rule) and constant after the
    last cloud.
    """
    weights = [0.0] * len(ks)
    for i, (k, following) in enumerate(pairwise(ks)):
        weights[i] += (following - k) / 2
        weights[i + 1] += (following - k) / 2
    # The trapezoidal rule counts only half of the recursions at ks[0] and at ks[-1].
    weights[0] += 0.5
    weights[-1] += 0.5 + (steps - 1 - ks[-1])
    return weights


def make_stepper(experiment: Experiment, generator: torch.Generator) -> Stepper:
    """Return a function that maps cloud_{k-1} to cloud_k with the compiled engine, as in a run."""
    hyper = experiment.source.with_readings(experiment.hyper)
    return Stepper(experiment.source, hyper, "fused", torch.get_num_threads(), generator)


def clouds_of_run(
    experiment: Experiment, cloud: PointCloud, ks: Sequence[int], seconds: float, generator: torch.Generator
) -> Iterator[PointCloud]:
    """Yield the cloud of a run at each k in ``ks``; stop after ``seconds`` seconds, not counting compilation."""

    def elapsed() -> float:
        return time.perf_counter() - COMPILE_TIME.overhead

    step, start = make_stepper(experiment, generator), elapsed()
    for k in ks:
        while cloud.step < k:
            cloud, _ = step(cloud)
            if elapsed() - start > seconds:
                return
        yield cloud


@dataclass
class CloudTimer:
    """A timer of recursions that start from one cloud of a run."""

    cloud: PointCloud
    stepper: Stepper
    stretch: int
    """Number of recursions in one timed stretch."""
    use: KernelUse
    calls: dict[str, Call]
    continues: bool
    """Whether a stretch continues the previous one, as it does for the last cloud; otherwise, it starts from
    ``cloud``."""
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "floor": [], "literal": []})

    def __post_init__(self) -> None:
        self.newest = self.cloud

    def advance(self) -> None:
        """Run ``stretch`` recursions with the compiled engine, starting from the newest cloud."""
        for _ in range(self.stretch):
            self.newest, _ = self.stepper(self.newest)

    def take_turn(self, with_literal: bool) -> None:
        if not self.continues:
            # The neighbour lists and tables in memory belong to the end of the previous stretch; one recursion from the
            # cloud rebuilds them.
            self.newest = self.cloud
            self.stepper(self.cloud)
        self.milliseconds["ours"].append(_milliseconds(self.advance) / self.stretch)
        self.calls["floor"]()
        repeats = range(self.stretch)
        floor = self.calls["floor"]
        self.milliseconds["floor"].append(_milliseconds(lambda: [floor() for _ in repeats]) / self.stretch)
        if with_literal:
            self.milliseconds["literal"].append(_milliseconds(self.calls["literal"]))

    @property
    def medians(self) -> dict[str, float]:
        return {f"{name}_ms": median(times) for name, times in self.milliseconds.items()}


def make_timer(experiment: Experiment, cloud: PointCloud, gap: int | None, seconds: float) -> CloudTimer:
    """Return a timer for recursions that start from a cloud; each timed stretch lasts about ``seconds`` seconds.

    ``gap`` is the number of recursions up to the next cloud, or None for the last cloud, which represents all later
    recursions.
    """
    generator = torch.Generator().manual_seed(cloud.step)
    stepper = make_stepper(experiment, generator)
    # The first call allocates memory and loads compiled passes.
    use = kernel_use(*stepper(cloud))
    estimate = _milliseconds(lambda: stepper(cloud)) / 1e3
    calls = {
        "floor": floor_of(experiment, cloud, use, generator),
        "literal": literal_of(experiment, cloud, torch.float64, generator),
    }
    stretch = max(1, min(LONGEST_STRETCH, gap or LONGEST_STRETCH, int(seconds / estimate)))
    return CloudTimer(cloud, stepper, stretch, use, calls, continues=gap is None)


def measure_experiment(
    config: TrainConfig, effort: Effort, on_turn: Callable[[], object] = lambda: None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure an experiment, calling ``on_turn`` after every turn; return its record and the records of its clouds."""
    experiment, cloud = experiment_of(config)
    steps = experiment.steps
    generator = torch.Generator().manual_seed(config.seed)
    grid = log_spaced(steps, effort.largest_k)
    clouds = list(clouds_of_run(experiment, cloud, grid, effort.run_seconds, generator))
    ks = [cloud.step for cloud in clouds]
    gaps = [*(following - k for k, following in pairwise(ks)), None]
    timers = [
        make_timer(experiment, cloud, gap, effort.stretch_seconds) for cloud, gap in zip(clouds, gaps, strict=True)
    ]
    for turn in range(effort.turns):
        # The speed of the machine changes during the measurement; taking turns spreads the changes over all clouds.
        for timer in timers:
            timer.take_turn(with_literal=turn < effort.literal_turns)
        on_turn()
    weights = weights_of_clouds(ks, steps)
    records = [
        {
            "dataset": config.dataset.name,
            "k": timer.cloud.step,
            "stands_for": weight,
            "regime": timer.use.regime,
            "rounds": timer.use.rounds,
            "share_of_pairs": timer.use.share,
            "stretch": timer.stretch,
            **timer.medians,
        }
        for timer, weight in zip(timers, weights, strict=True)
    ]
    return summarise(config.dataset.name, steps, records), records


def summarise(dataset: str, steps: int, clouds: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute the record of a whole experiment from the records of its clouds."""
    means = {
        name: sum(cloud["stands_for"] * cloud[name] for cloud in clouds) / steps
        for name in ("ours_ms", "literal_ms", "floor_ms")
    }
    return {
        "dataset": dataset,
        "steps": steps,
        "largest_k": clouds[-1]["k"],
        "last_stands_for": clouds[-1]["stands_for"] / steps,
        **means,
        "seconds": means["ours_ms"] * steps / 1e3,
        "literal_seconds": means["literal_ms"] * steps / 1e3,
        "literal_over_ours": means["literal_ms"] / means["ours_ms"],
        "ours_over_floor": means["ours_ms"] / means["floor_ms"],
    }


def _milliseconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)
