"""An experiment: the data, neuron and settings of a config on a device, and the first checkpoint of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from proxlearn.config.run_name import digest
from proxlearn.config.schema import TrainConfig
from proxlearn.core import options
from proxlearn.core.cloud import PointCloud, draw_cloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import LOSSES, Loss, find_loss, recommended_loss, with_link
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.registry import NEURONS, make_neuron
from proxlearn.core.part_checks import check_loss, check_probabilities
from proxlearn.core.samples import Samples
from proxlearn.core.weight_updates import UPDATES
from proxlearn.data import registry
from proxlearn.data.prepare import PreparedData, check_magnitudes, prepare
from proxlearn.data.table import Table
from proxlearn.errors import InputError
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.device import check_outputs_memory, resolve_device
from proxlearn.training.fit import initial_fit, split_seed
from proxlearn.training.settings import Settings
from proxlearn.training.stepper import is_finite


@dataclass(frozen=True)
class Experiment:
    """The config, settings, data and device of a run, which do not change during its steps."""

    config: TrainConfig
    """The config of the user; a value that is left to the selection is None here and is stored in ``settings``."""
    settings: Settings
    source: Risk
    """The training problem in float64 on the CPU; ``to`` converts this problem to other precisions."""
    problem: Risk
    test: Samples
    prepared: PreparedData
    device: torch.device
    validation: Samples | None = None
    """Held-out rows of the training part, which are scored but not used for training."""

    @property
    def parts(self) -> dict[str, Samples]:
        """The parts of the data that are scored, by name."""
        held_out = {} if self.validation is None else {"validation": self.validation}
        return {"train": self.problem.samples, **held_out, "test": self.test}

    @property
    def identity(self) -> str:
        """The identifier of the run, which depends on all that affects the result: settings, data and selection."""
        selected = [repr(getattr(self.settings, key)) for key in self.config.selected if key != "steps"]
        return "-".join((self.config_identity, *selected))

    @property
    def config_identity(self) -> str:
        """The part of ``identity`` that does not depend on the selection."""
        return f"{digest(self.config)}-{self.prepared.table.sha256}"

    @property
    def part_names(self) -> dict[str, str]:
        """The names from which prediction reconstructs the neuron, its activation and the loss."""
        # A part of another package is looked up by the name of its entry point, which may differ from the part's own
        # name.
        named, loss = self.config.dataset.neuron, self.config.loss
        neuron_name = self.source.neuron.name if named is None or named in NEURONS.own_names else named
        loss_name = self.source.loss.name if loss is None or loss in LOSSES.own_names else loss
        return {"neuron": neuron_name, "activation": self.config.activation, "loss": loss_name}

    @property
    def hyper(self) -> Hyper:
        return self.settings.hyper

    @property
    def steps(self) -> int:
        """The number of recursions of the run."""
        assert self.settings.steps is not None, "the selection has not set steps"
        return self.settings.steps

    @property
    def metric_samples(self) -> dict[str, Samples]:
        """The rows of each part on which the metrics of logged steps are computed."""
        return {name: sample_rows(samples, self.config.metric_rows) for name, samples in self.parts.items()}

    @property
    def link_slope(self) -> float | None:
        """The slope that converts outputs to class probabilities, or None if the selection has not fitted a slope."""
        return getattr(self.source.loss, "link_slope", None)

    def to(self, dtype: torch.dtype) -> Experiment:
        """Return the same experiment in another precision; the values are converted from the float64 data."""
        test = self.prepared.test.to(self.device, dtype)
        held_out = self.prepared.validation
        validation = None if held_out is None else held_out.to(self.device, dtype)
        return replace(self, problem=self.source.to(self.device, dtype), test=test, validation=validation)

    def with_selection(self, values: Mapping[str, Any], link_slope: float | None) -> Experiment:
        """Return the experiment with the values that a selection has chosen for settings that are null."""
        selected = {name: values[name] for name in self.config.selected}
        settings = replace(self.settings, **selected)
        loss = with_link(self.source.loss, link_slope)
        source, problem = (
            risk.with_parts(loss=loss, confinement=settings.confinement) for risk in (self.source, self.problem)
        )
        return replace(self, settings=settings, source=source, problem=problem)


def build_experiment(config: TrainConfig) -> Experiment:
    """Load the data that a config names, and return the experiment on the device of the config."""
    device = torch.device(resolve_device(config.device.device))
    # An unusable weight update of another package is rejected before the data are read, instead of at the first step.
    UPDATES[config.weights]
    table = registry.load(config.dataset)
    prepared = prepare(table, config.dataset, config.split_seed, config.validation_fraction)
    check_magnitudes(prepared, (config.device.dtype, config.device.fallback_dtype))
    neuron = choose_neuron(prepared.table, config.dataset.neuron, config.activation)
    loss = choose_loss(config.loss, neuron, prepared.table.task, (config.drift, config.prox_potential))
    held_out = None if prepared.validation is None else with_targets(neuron, prepared.validation)
    prepared = replace(prepared, train=with_targets(neuron, prepared.train), test=with_targets(neuron, prepared.test))
    prepared = replace(prepared, validation=held_out)
    check_loss(loss, prepared.train.y)
    if table.task != "regression":
        check_probabilities(loss, neuron.width)
    settings = settings_from_config(config).for_rows(len(prepared.train))
    batch = settings.batch_size if isinstance(settings.batch_size, int) else len(prepared.train)
    check_outputs_memory(config, min(batch, len(prepared.train)), len(prepared.table.classes))
    problem = Risk.from_samples(neuron, prepared.train, loss, settings.confinement or 0.0)
    problem.check_readings(settings)
    for block in problem.blocks if config.init == "box" else ():
        if block not in config.dataset.initial:
            raise InputError(f"dataset.initial has no interval for `{block}`", f"try +dataset.initial.{block}=[-1,1]")
    experiment = Experiment(config, settings, problem, problem, prepared.test, prepared, device)
    return experiment.to(dtype_of(config.device.dtype))


def settings_from_config(config: TrainConfig) -> Settings:
    """Convert a config to the settings of a fit; values that the selection chooses are None."""
    values: dict[str, Any] = {"noise_scale": config.dataset.noise_scale, "dtype": config.device.dtype}
    values |= {field.name: getattr(config, field.name) for field in fields(Settings) if field.name not in values}
    # null means 0, unless a selection chooses the value; the literal algorithm has no confinement.
    if values["confinement"] is None and ("confinement" not in config.selected or config.solver == "literal"):
        values["confinement"] = 0.0
    if values["horizon"] is None and values["h_schedule"] == "cosine" and "horizon" not in config.selected:
        values["h_schedule"] = "constant"
    return Settings(**values)


def sample_rows(samples: Samples, most: int | None) -> Samples:
    """Return a fixed random sample of at most ``most`` rows, in their original order; None means all rows."""
    if most is None or len(samples) <= most:
        return samples
    rows = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))[:most]
    return samples.take_rows(rows.sort().values.to(samples.X.device))


def with_targets(neuron: Neuron, samples: Samples) -> Samples:
    """Return ``samples`` with the regression targets that the neuron assigns to their labels."""
    return samples if samples.labels is None else replace(samples, y=neuron.targets(samples.labels))


def choose_neuron(table: Table, name: str | None, activation: str) -> Neuron:
    """Return the neuron called ``name`` or, if it is None, the first neuron that supports the task of the data."""
    classes = len(table.classes)
    if table.target.ndim == 2:
        return make_neuron(name or "tanh_outputs", 0, activation, table.target.shape[1])
    fitting = [key for key in NEURONS.own_names if table.task in make_neuron(key, classes, None).tasks]
    name = name or fitting[0]
    neuron = make_neuron(name, classes, activation)
    if table.task not in neuron.tasks:
        raise InputError(
            f"the {name} neuron does not support dataset.task={table.task}", f"use dataset.neuron={'|'.join(fitting)}"
        )
    return neuron


def choose_loss(name: str | None, neuron: Neuron, task: options.Task, readings: Iterable[str] = ()) -> Loss:
    """Return the loss called ``name``, or the recommended loss if ``name`` is None.

    ``readings`` contains the values of drift and prox_potential, on which the recommendation depends. Raise InputError
    if the neuron or the task does not support the loss.
    """
    trainable = LOSSES.own_names if neuron.losses is None else neuron.losses
    supported = [key for key in trainable if task in find_loss(key).tasks]
    if not supported:
        raise InputError(
            f"the {neuron.name} neuron has no loss for dataset.task={task}", "choose another dataset.neuron"
        )
    if name is None:
        recommended = recommended_loss(task, readings)
        return find_loss(recommended if recommended in supported else supported[0])
    loss = find_loss(name)
    if task not in loss.tasks:
        if neuron.losses is None:
            supported = LOSSES.names_where(lambda key: task in find_loss(key).tasks)
        raise InputError(f"loss={name} does not support dataset.task={task}", f"choose loss={'|'.join(supported)}")
    if neuron.losses is not None and name not in neuron.losses:
        problem = f"the {neuron.name} neuron cannot be trained with loss={name}"
        raise InputError(problem, f"choose loss={'|'.join(supported)}, or another dataset.neuron")
    return loss


def first_checkpoint(experiment: Experiment) -> Checkpoint:
    """Return the checkpoint of step 0: the initial cloud, and the state of the noise generator.

    Two separate random streams, derived from ``seed``, are used for the cloud and for the noise.
    """
    config = experiment.config
    cloud_seed, noise_seed = split_seed(config.seed)
    coordinates = experiment.problem.blocks
    if config.init_sha256 is None and config.init == "normal":
        cloud = initial_fit(experiment.source, experiment.settings, config.seed).cloud
    elif config.init_sha256 is None:
        cloud_generator = torch.Generator().manual_seed(cloud_seed)
        cloud = draw_cloud(coordinates, config.dataset.initial, config.N, config.rho0, cloud_generator)
    else:
        cloud = load_initial_cloud(config.init_from, config.init_sha256, (config.N, sum(coordinates.values())))
    cloud = cloud.to(experiment.device, dtype_of(config.device.dtype))
    if not is_finite(cloud):
        source = {"box": "dataset.initial", "normal": "init_scale"}[config.init]
        source = source if config.init_sha256 is None else "init_from"
        problem = f"{source} gives an initial cloud that is not finite in {config.device.dtype}"
        raise InputError(problem, f"choose another {source}, or use device.dtype=float64")
    noise_generator = torch.Generator().manual_seed(noise_seed)
    return Checkpoint(cloud, noise_generator.get_state(), experiment.identity)


def load_initial_cloud(folder: str | None, sha256: str, shape: tuple[int, int]) -> PointCloud:
    """Load the initial cloud of a run from the checkpoint with the given checksum in the folder of another run.

    Raise InputError if the checkpoint is missing, or if its cloud does not have ``shape``, which is (N, p).
    """
    for file in checkpoint_file.valid_checkpoints(Path(folder) / "checkpoints") if folder else ():
        if file.sha256 == sha256:
            cloud = checkpoints.parse_checkpoint(file).cloud
            if cloud.theta.shape == shape:
                # The epsilon and the neighbour list are left out, because they depend on the settings of the other run.
                return PointCloud(cloud.theta, cloud.log_rho)
            N, p = cloud.theta.shape
            remedy = f"set N={N}" if shape[0] != N else "start from a run with the same neuron and features"
            problem = f"the cloud of init_from={folder} has N={N} and {p} parameters per particle"
            raise InputError(f"{problem}, but this run needs N={shape[0]} and {shape[1]} parameters", remedy)
    raise InputError(
        f"the cloud that this run started from (checksum {sha256[:12]}) was not found",
        "repeat the `proxlearn train ... init_from=FOLDER` command",
    )


def dtype_of(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype
