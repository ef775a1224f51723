"""One-dimensional flows whose solutions are computed by finite volumes.

- Aggregation has the interaction W(theta, theta') = -exp(-(theta - theta')^2 / 2) and beta = 5. Two groups
  attract each other.
- The double well has the potential V(theta) = (theta^2 - 1)^2 and beta = 2. The initial distribution N(0.4, 0.4^2)
  spreads into both wells.
- The small network follows the gradient flow of the paper's F_beta, with the quadratic loss and a neuron with one
  parameter, Phi(x, theta) = tanh(theta x). A confinement keeps the distribution on a bounded interval; without it, the
  risk is bounded in theta, and no equilibrium exists.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.functionals.energy import Energy
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.verify.finite_volumes import GridFlow, Potential


def attraction(theta: Tensor, other: Tensor) -> Tensor:
    return -torch.exp(-(theta - other).square().sum() / 2)


class Aggregation(GridFlow):
    """The aggregation flow, which starts from a mixture of N(-0.9, 0.3^2) and N(0.9, 0.4^2)."""

    name, beta, horizon = "aggregation", 5.0, 1.0
    low, high = -5.0, 5.0
    components = ((0.5, -0.9, 0.3), (0.5, 0.9, 0.4))

    def __init__(self) -> None:
        self.functional = Energy(W=attraction, p=1)

    def potential(self, x: np.ndarray) -> Potential:
        kernel = -2 * np.exp(-((x[:, None] - x) ** 2) / 2)
        return lambda masses: kernel @ masses


def well(theta: Tensor) -> Tensor:
    return (theta.square() - 1).square().sum()


class DoubleWell(GridFlow):
    """The double-well flow, which is linear in the distribution."""

    name, beta, horizon = "double_well", 2.0, 1.0
    low, high = -3.0, 3.0
    components = ((1.0, 0.4, 0.4),)
    moments = ("mean", "second")

    def __init__(self) -> None:
        self.functional = Energy(V=well, p=1)

    def potential(self, x: np.ndarray) -> Potential:
        values = (x**2 - 1) ** 2
        return lambda masses: values


CONFINEMENT = 0.1
SAMPLES = np.linspace(-2.0, 2.0, 16)
TARGETS = 0.8 * np.tanh(2 * SAMPLES)


def response(theta: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return torch.tanh(theta["theta"][0] * x[0])


class OneParameterNetwork(GridFlow):
    """The flow of the small network, whose risk uses 16 samples of 0.8 tanh(2 x); it starts from N(0.2, 0.8^2)."""

    name, beta, horizon = "one_parameter_network", 20.0, 4.0
    low, high = -6.0, 8.0
    components = ((1.0, 0.2, 0.8),)
    moments = ("mean", "second")

    def __init__(self) -> None:
        neuron = FunctionNeuron(response, {"theta": 1}, name="tanh(theta x)")
        samples = torch.from_numpy(SAMPLES)[:, None]
        self.functional = Risk(samples, torch.from_numpy(TARGETS), neuron=neuron, confinement=CONFINEMENT)

    def potential(self, x: np.ndarray) -> Potential:
        outputs = np.tanh(x[:, None] * SAMPLES)
        confinement = CONFINEMENT / 2 * x**2

        def first_variation(masses: np.ndarray) -> np.ndarray:
            slopes = 2 * (masses @ outputs - TARGETS) / len(SAMPLES)
            return np.asarray(outputs @ slopes + confinement)

        return first_variation
