"""One recursion on the paper's experiments: ours, the algorithms as printed, and the floor.

The floor is what torch takes for the two matrix products, one pass of a sigmoid (softmax neuron: an exponential) in
place and the noise, on the same shapes, with all memory given: no recursion made of torch's own dense products is
cheaper.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from proxlearn.bench.timing import Call, timings
from proxlearn.config.schema import TrainConfig
from proxlearn.core import literal
from proxlearn.core.cloud import PointCloud
from proxlearn.run.engine import make_step
from proxlearn.run.experiment import Experiment, build_experiment, first_checkpoint
from proxlearn.training.engine import Step
from proxlearn.training.stepper import draw_noise

SPREAD = {"diabetes": 4e6, "sine": 2e3}
"""Recursions whose diffusion is added to cloud_0 before the measurement: 4e6, until diabetes' kernel has emptied; 2e3,
until a particle of the sine's has about three neighbours that matter."""
MADE = {"wdbc": 10_000}
"""Recursions that are really made before the measurement: how many neurons are saturated is up to the run, not only to
its noise."""
WARM_UP = 30


def experiment_of(config: TrainConfig) -> tuple[Experiment, PointCloud]:
    """An experiment and its cloud_0, as `proxlearn train` would make them."""
    experiment = build_experiment(config)
    return experiment, first_checkpoint(experiment).cloud


def spread_cloud(cloud: PointCloud, experiment: Experiment, k: float, generator: torch.Generator) -> PointCloud:
    """A cloud as diffusion alone would leave it after k recursions."""
    scale = experiment.hyper.diffusion * math.sqrt(k)
    noise = torch.randn(cloud.theta.shape, generator=generator, dtype=cloud.theta.dtype)
    return replace(cloud, theta=cloud.theta + scale * noise)


class StepTimer:
    """A recursion that goes on from its own last cloud, as a run does, drawing its noise."""

    def __init__(self, step: Step, cloud: PointCloud, generator: torch.Generator) -> None:
        self.step, self.cloud, self.generator = step, cloud, generator

    def __call__(self) -> None:
        self.cloud, _ = self.step(self.cloud, *draw_noise(self.cloud, self.generator))


def floor_of(experiment: Experiment, cloud: PointCloud, generator: torch.Generator) -> Call:
    X = experiment.problem.samples.X
    softmax = experiment.problem.neuron.name.startswith("softmax")
    rows = cloud.theta.numel() // X.shape[1] if softmax else len(cloud.theta)
    W, Xt = torch.randn(rows, X.shape[1]), X.T.contiguous()
    Z, out, noise = X.new_empty(rows, len(X)), X.new_empty(rows, X.shape[1]), torch.empty_like(cloud.theta)
    in_place = torch.exp_ if softmax else torch.sigmoid_

    def floor() -> None:
        torch.mm(W, Xt, out=Z)
        in_place(Z)
        torch.mm(Z, X, out=out)
        torch.randn(noise.shape, out=noise, generator=generator)

    return floor


def literal_of(experiment: Experiment, cloud: PointCloud, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """core/literal.py as tested, with its noise, from one cloud."""
    experiment, cloud = experiment.to(dtype), cloud.to("cpu", dtype)
    rho = cloud.rho

    def recurse() -> None:
        literal.prox_learn(experiment.problem, cloud.theta, rho, experiment.hyper, *draw_noise(cloud, generator))

    return recurse


class RecursionBench:
    """One dataset's record, made in several passes: a machine's pace changes by the minute, not only by the second."""

    def __init__(self, config: TrainConfig, made: float = 1.0) -> None:
        """``made``: the share of its recursions that is made beforehand."""
        generator, dataset = torch.Generator().manual_seed(0), config.dataset.name
        experiment, cloud = experiment_of(config)
        if dataset in SPREAD:
            cloud = spread_cloud(cloud, experiment, SPREAD[dataset], generator)
        ours = StepTimer(make_step("fused", experiment, torch.get_num_threads()), cloud, generator)
        for _ in range(max(WARM_UP, int(made * MADE.get(dataset, 0)))):
            ours()
        # Where the measurement begins.
        self.cloud = ours.cloud
        self.calls: dict[str, Call] = {
            "ours_ms": ours,
            "floor_ms": floor_of(experiment, cloud, generator),
            "literal64_ms": literal_of(experiment, ours.cloud, torch.float64, generator),
            "literal32_ms": literal_of(experiment, ours.cloud, torch.float32, generator),
        }
        self.names = {"dataset": dataset, "N": len(cloud.theta), "n": len(experiment.problem.samples)}
        self.found: dict[str, list[float]] = {name: [] for name in self.calls}

    def measure(self, seconds: float) -> None:
        for name, batches in timings(self.calls, seconds).items():
            self.found[name] += batches

    @property
    def record(self) -> dict[str, Any]:
        # The median besides the best: a machine's best moments are not what a long run is made of.
        typical = {"ours_typical_ms": median(self.found["ours_ms"])}
        return self.names | {name: min(batches) for name, batches in self.found.items()} | typical
