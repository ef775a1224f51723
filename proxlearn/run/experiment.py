"""A config made concrete: data, neuron and hyperparameters on a device, and the randomness of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud, draw_cloud
from proxlearn.core.neurons import NEURONS
from proxlearn.core.problem import Problem, Samples
from proxlearn.core.recursion import Hyper
from proxlearn.data import registry
from proxlearn.data.prepare import Prepared, prepare
from proxlearn.errors import InputError, RunError
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.device import resolve_device
from proxlearn.schema import TrainConfig

HYPER = (
    "beta",
    "h",
    "epsilon",
    "delta",
    "L",
    "drift",
    "kernel",
    "orientation",
    "prox_potential",
    "tolerance",
    "weights",
)


@dataclass(frozen=True)
class Experiment:
    """All that a step needs and does not change."""

    config: TrainConfig
    hyper: Hyper
    problem: Problem
    test: Samples
    prepared: Prepared
    device: torch.device

    def to(self, dtype: torch.dtype) -> Experiment:
        """The same experiment in another precision, from the float64 data."""
        problem = Problem(self.problem.neuron, self.prepared.train).to(self.device, dtype)
        return replace(self, problem=problem, test=self.prepared.test.to(self.device, dtype))


def build_experiment(config: TrainConfig) -> Experiment:
    """Load the data and put everything where the config says."""
    device = torch.device(resolve_device(config.device.device))
    prepared = prepare(registry.load(config.dataset), config.dataset, config.split_seed)
    hyper = Hyper(noise_scale=config.dataset.noise_scale, **{name: getattr(config, name) for name in HYPER})
    problem = Problem(NEURONS[config.dataset.neuron], prepared.train)
    return Experiment(config, hyper, problem, prepared.test, prepared, device).to(dtype_of(config.device.dtype))


def first_checkpoint(experiment: Experiment) -> tuple[Checkpoint, torch.Generator]:
    """cloud_0, and the generator of the noise: both from ``seed``, each with a stream of its own."""
    config = experiment.config
    cloud_seed, noise_seed = np.random.SeedSequence(config.seed).generate_state(2, np.uint32).tolist()
    coordinates = experiment.problem.neuron.coordinates(experiment.problem.samples.X.shape[1])
    if set(coordinates) != set(config.dataset.initial):
        blocks = ", ".join(coordinates)
        raise InputError(f"dataset.initial must give an interval for each of {blocks}, and no other", "correct it")
    drawing = torch.Generator().manual_seed(cloud_seed)
    cloud = draw_cloud(coordinates, config.dataset.initial, config.N, config.rho0, drawing)
    generator = torch.Generator(experiment.device).manual_seed(noise_seed)
    return Checkpoint(cloud.to(experiment.device, dtype_of(config.device.dtype)), generator.get_state()), generator


def draw(cloud: PointCloud, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The randomness of one step: standard normal noise, and z0 uniform on (0, 1]."""
    dtype, device = cloud.theta.dtype, cloud.theta.device
    noise = torch.randn(cloud.theta.shape, generator=generator, dtype=dtype, device=device)
    return noise, 1 - torch.rand(len(cloud.theta), generator=generator, dtype=dtype, device=device)


def is_finite(cloud: PointCloud) -> bool:
    """NaN and infinity survive a sum: one number tells of the whole cloud."""
    return bool(torch.isfinite(cloud.theta.sum() + cloud.log_rho.sum()))


def not_finite(cloud: PointCloud) -> RunError:
    """What to say when a cloud has left the finite range."""
    quantity = "rho" if bool(torch.isfinite(cloud.theta.sum())) else "theta"
    remedy = "use kernel=log" if quantity == "rho" else "choose a smaller h, or device=jetson-float32-to-float64"
    return RunError(f"{quantity} is not finite after step {cloud.step}", remedy)


def dtype_of(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype
