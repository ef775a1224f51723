"""Measurements of one recursion from special clouds, compared with the printed algorithms and the floor of the drift.

The clouds are special because each of them is in a single regime of the kernel. A whole experiment (experiments.py) may
have only a few recursions in this regime. Here, the floor (torch_floor.py) covers only the drift.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from proxlearn.bench.timing import Call, timings
from proxlearn.bench.torch_floor import drift_floor
from proxlearn.config.schema import TrainConfig
from proxlearn.core import literal
from proxlearn.core.cloud import PointCloud
from proxlearn.run.experiment import Experiment, build_experiment, first_checkpoint
from proxlearn.training.iterate import iterate
from proxlearn.training.stepper import draw_noise

SPREAD = {"diabetes": 4e6, "sine": 2e3}
"""Number of recursions whose diffusion is added to the initial cloud before the measurement. After 4e6, the kernel of
diabetes is the identity; after 2e3, a particle of sine has about three relevant neighbours.
"""
BURN_IN = {"wdbc": 10_000}
"""Number of recursions before the measurement, because the number of saturated neurons changes during a run."""
WARM_UP = 30


def experiment_of(config: TrainConfig) -> tuple[Experiment, PointCloud]:
    """Return the experiment of a config and its initial cloud, as in `proxlearn train`."""
    experiment = build_experiment(config)
    return experiment, first_checkpoint(experiment).cloud


def spread_cloud(cloud: PointCloud, experiment: Experiment, k: float, generator: torch.Generator) -> PointCloud:
    """Return the cloud as it would be after k recursions with diffusion only."""
    scale = experiment.hyper.diffusion * math.sqrt(k)
    noise = torch.randn(cloud.theta.shape, generator=generator, dtype=cloud.theta.dtype)
    return replace(cloud, theta=cloud.theta + scale * noise)


class Recursions:
    """The training loop without metrics or files; each call runs one recursion."""

    def __init__(self, experiment: Experiment, cloud: PointCloud, generator: torch.Generator) -> None:
        self.cloud = cloud
        self.steps = iterate(experiment.source, cloud, experiment.hyper, generator=generator, engine="fused")

    def __call__(self) -> None:
        self.cloud, _ = next(self.steps)


def literal_of(experiment: Experiment, cloud: PointCloud, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """Return a function that draws noise and runs one recursion of core/literal.py, always from the same cloud."""
    experiment, cloud = experiment.to(dtype), cloud.to("cpu", dtype)
    rho = cloud.rho

    def recurse() -> None:
        literal.prox_learn(experiment.problem, cloud.theta, rho, experiment.hyper, *draw_noise(cloud, generator))

    return recurse


class RecursionBench:
    """A benchmark of the recursion on one dataset; several passes even out changes in the speed of the machine."""

    def __init__(self, config: TrainConfig, burn_in: float = 1.0) -> None:
        """Prepare the measurement; ``burn_in`` is the fraction of the BURN_IN recursions that is run beforehand."""
        generator, dataset = torch.Generator().manual_seed(0), config.dataset.name
        experiment, cloud = experiment_of(config)
        if dataset in SPREAD:
            cloud = spread_cloud(cloud, experiment, SPREAD[dataset], generator)
        ours = Recursions(experiment, cloud, generator)
        for _ in range(max(WARM_UP, int(burn_in * BURN_IN.get(dataset, 0)))):
            ours()
        self.cloud = ours.cloud
        """The cloud at the start of the measurement."""
        self.calls: dict[str, Call] = {
            "ours_ms": ours,
            "floor_ms": drift_floor(experiment, cloud, generator),
            "literal64_ms": literal_of(experiment, ours.cloud, torch.float64, generator),
            "literal32_ms": literal_of(experiment, ours.cloud, torch.float32, generator),
        }
        self.names = {"dataset": dataset, "N": len(cloud.theta), "n": len(experiment.problem.samples)}
        self.batches: dict[str, list[float]] = {name: [] for name in self.calls}

    def measure(self, seconds: float) -> None:
        for name, batches in timings(self.calls, seconds).items():
            self.batches[name] += batches

    @property
    def record(self) -> dict[str, Any]:
        # The median is stored as well, because the recursions of a long run do not always reach the minimum time.
        typical = {"ours_typical_ms": median(self.batches["ours_ms"])}
        return self.names | {name: min(batches) for name, batches in self.batches.items()} | typical
