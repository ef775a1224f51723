"""A config made concrete: data, neuron and hyperparameters on a device, and the randomness of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud, draw_cloud
from proxlearn.core.neurons import NEURONS, Neuron
from proxlearn.core.problem import Problem, Samples
from proxlearn.core.recursion import Hyper
from proxlearn.data import registry
from proxlearn.data.prepare import Prepared, prepare
from proxlearn.data.table import Table
from proxlearn.errors import InputError, RunError, did_you_mean
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import sealed
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.device import check_outputs_memory, resolve_device
from proxlearn.schema import TrainConfig, digest

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

    @property
    def identity(self) -> str:
        """What determines the trajectory, settings and data, as one word."""
        return f"{digest(self.config)}-{self.prepared.table.sha256}"

    def to(self, dtype: torch.dtype) -> Experiment:
        """The same experiment in another precision, from the float64 data."""
        problem = Problem(self.problem.neuron, self.prepared.train).to(self.device, dtype)
        return replace(self, problem=problem, test=self.prepared.test.to(self.device, dtype))


def build_experiment(config: TrainConfig) -> Experiment:
    """Load the data and put everything where the config says."""
    device = torch.device(resolve_device(config.device.device))
    prepared = prepare(registry.load(config.dataset), config.dataset, config.split_seed)
    neuron = choose_neuron(prepared.table, config.dataset.neuron)
    check_outputs_memory(config, max(len(prepared.train), len(prepared.test)), len(prepared.table.classes))
    hyper = Hyper(noise_scale=config.dataset.noise_scale, **{name: getattr(config, name) for name in HYPER})
    problem = Problem(neuron, prepared.train)
    return Experiment(config, hyper, problem, prepared.test, prepared, device).to(dtype_of(config.device.dtype))


def choose_neuron(table: Table, name: str | None) -> Neuron:
    """The neuron of the config, or the first one made for the data's task."""
    known = {each: make(len(table.classes)) for each, make in NEURONS.items()}
    if name is not None and name not in known:
        raise InputError(f"no neuron `{name}`", did_you_mean(name, known))
    neuron = known[name] if name else next(each for each in known.values() if table.task in each.tasks)
    if table.task not in neuron.tasks:
        fitting = "|".join(each for each in known if table.task in known[each].tasks)
        raise InputError(f"the {name} neuron cannot do {table.task}", f"use dataset.neuron={fitting}")
    return neuron


def first_checkpoint(experiment: Experiment) -> Checkpoint:
    """cloud_0 and the state of the noise: both from ``seed``, each with a stream of its own."""
    config = experiment.config
    cloud_seed, noise_seed = np.random.SeedSequence(config.seed).generate_state(2, np.uint32).tolist()
    coordinates = experiment.problem.neuron.coordinates(experiment.problem.samples.X.shape[1])
    for block in coordinates:
        if block not in config.dataset.initial:
            raise InputError(f"dataset.initial gives no interval for `{block}`", f"try +dataset.initial.{block}=[-1,1]")
    if config.init_sha256 is None:
        drawing = torch.Generator().manual_seed(cloud_seed)
        cloud = draw_cloud(coordinates, config.dataset.initial, config.N, config.rho0, drawing)
    else:
        cloud = cloud_of(config.init_from, config.init_sha256, (config.N, sum(coordinates.values())))
    cloud = cloud.to(experiment.device, dtype_of(config.device.dtype))
    noise = torch.Generator(experiment.device).manual_seed(noise_seed)
    return Checkpoint(cloud, noise.get_state(), experiment.identity)


def cloud_of(folder: str | None, sha256: str, shape: tuple[int, int]) -> PointCloud:
    """The cloud that another run had reached, as a first one."""
    for file in sealed.valid(Path(folder) / "checkpoints") if folder else ():
        if file.sha256 == sha256:
            cloud = checkpoints.opened(file).cloud
            if cloud.theta.shape == shape:
                return replace(cloud, step=0)
            N, p = cloud.theta.shape
            remedy = f"set N={N}" if shape[0] != N else "start from a run on the same kind of data"
            raise InputError(
                f"init_from={folder} has {N} particles of {p} coordinates, not {shape[0]} of {shape[1]}", remedy
            )
    raise InputError(
        f"the cloud that this run started from (checksum {sha256[:12]}) is not to be found",
        "give the `proxlearn train ... init_from=FOLDER` command again",
    )


def draw(cloud: PointCloud, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The randomness of one step: standard normal noise, and z0 uniform on (0, 1]."""
    dtype, device = cloud.theta.dtype, cloud.theta.device
    noise = torch.randn(cloud.theta.shape, generator=generator, dtype=dtype, device=device)
    return noise, 1 - torch.rand(len(cloud.theta), generator=generator, dtype=dtype, device=device)


def is_finite(cloud: PointCloud) -> bool:
    """NaN and infinity survive a sum: one number tells of the whole cloud."""
    if cloud.theta.device.type == "cpu":
        # numpy's sum wakes no second thread, which would take longer than the sum.
        return math.isfinite(cloud.theta.numpy().sum() + cloud.log_rho.numpy().sum())
    return math.isfinite(float(cloud.theta.sum() + cloud.log_rho.sum()))


def not_finite(cloud: PointCloud) -> RunError:
    """What to say when a cloud has left the finite range."""
    quantity = "rho" if bool(torch.isfinite(cloud.theta.sum())) else "theta"
    remedy = "use kernel=log" if quantity == "rho" else "choose a smaller h, or device=jetson-float32-to-float64"
    return RunError(f"{quantity} is not finite after step {cloud.step}", remedy)


def dtype_of(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype
