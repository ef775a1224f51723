"""Measurements of the time of one recursion for losses and neurons other than the paper's, on diabetes and on digits.

All recursions on a dataset start from the same cloud of a real run and are timed in turn. The first case of each
dataset uses compiled passes and the quadratic loss; the other cases are compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from proxlearn.bench.special_clouds import experiment_of
from proxlearn.bench.timing import Call, best_of
from proxlearn.config.schema import TrainConfig
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import cross_entropy, logistic
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.training.iterate import iterate

BURN_IN = 200
"""Number of recursions before the measurement."""


def measure_functionals(config: TrainConfig, seconds: float) -> list[dict[str, Any]]:
    """Measure each case of a dataset; ``ratio`` is the time of a case divided by the time of the first case."""
    experiment, cloud = experiment_of(config)
    hyper = replace(experiment.hyper, drift="first_variation", prox_potential="first_variation")
    risks = cases(experiment.source)
    steps = iterate(experiment.source, cloud, hyper, generator=torch.Generator().manual_seed(0))
    for _ in range(BURN_IN):
        cloud, _ = next(steps)
    calls = {name: _recursions(risk, cloud, hyper) for name, risk in risks.items()}
    for call in calls.values():
        call()
    times = best_of(calls, seconds)
    first = next(iter(times.values()))
    N, n = len(cloud.theta), len(experiment.source.samples)
    return [
        {
            "dataset": config.dataset.name,
            "case": name,
            "ms": milliseconds,
            "ratio": milliseconds / first,
            # Only the tensors of the functional are counted, not those of the kernel.
            "largest tensor / (N n + N p)": _largest_tensor(risks[name], cloud, hyper)
            / (N * n * risks[name].neuron.num_outputs + cloud.theta.numel()),
        }
        for name, milliseconds in times.items()
    ]


def cases(risk: Risk) -> dict[str, Risk]:
    """Return the risks to compare, by name; all use the samples of ``risk``, which must have a tanh neuron."""
    C, n_x = risk.neuron.num_outputs, risk.samples.X.shape[1]

    def with_neuron(neuron: Neuron) -> Risk:
        return Risk.from_samples(neuron, risk.samples)

    if C > 1:
        likelihood = Risk.from_samples(risk.neuron, risk.samples, cross_entropy)
        return {"tanh, quadratic": risk, "tanh, cross_entropy": likelihood}
    return {
        "tanh, quadratic": risk,
        "tanh, logistic": Risk.from_samples(risk.neuron, risk.samples, logistic),
        "relu": with_neuron(Perceptron(ACTIVATIONS["relu"])),
        "user's function": with_neuron(FunctionNeuron(_phi, {"a": 1, "b": 1, "w": n_x})),
    }


def _phi(theta: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return theta["a"][0] * torch.tanh(theta["w"] @ x + theta["b"][0])


def _recursions(risk: Risk, cloud: PointCloud, hyper: Hyper) -> Call:
    steps = iterate(risk, cloud, hyper, generator=torch.Generator().manual_seed(1), engine="fused")
    return lambda: next(steps)


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that records the number of elements in the largest tensor that an operation returns."""

    elements: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor):
                self.elements = max(self.elements, value.untyped_storage().nbytes() // value.element_size())
        return result


def _largest_tensor(risk: Risk, cloud: PointCloud, hyper: Hyper) -> int:
    risk = risk.to("cpu", cloud.theta.dtype)
    with _Largest() as largest:  # type: ignore[no-untyped-call]
        risk.potentials(cloud.theta, cloud.rho, hyper)
    elements: int = largest.elements
    return elements
