"""The paper's equation for a network whose neuron has one parameter: Phi(x, theta) = tanh(theta x), quadratic loss.

A confinement keeps the distribution on a bounded interval; without it, the risk is bounded in theta, and no equilibrium
exists.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.verify.finite_volumes import GridFlow, Potential

CONFINEMENT = 0.1
SAMPLES = np.linspace(-2.0, 2.0, 16)
TARGETS = 0.8 * np.tanh(2 * SAMPLES)


def response(theta: Mapping[str, Tensor], x: Tensor) -> Tensor:
    return torch.tanh(theta["theta"][0] * x[0])


class OneParameterNetwork(GridFlow):
    """The flow of the risk of a network on 16 samples of 0.8 tanh(2 x), from N(0.2, 0.8^2)."""

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
