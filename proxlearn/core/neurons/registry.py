"""The neurons by name; a new neuron is added here."""

from __future__ import annotations

from collections.abc import Callable

from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.softmax import SoftmaxNeuron
from proxlearn.core.neurons.tanh import TanhNeuron
from proxlearn.core.neurons.tanh_outputs import TanhOutputsNeuron

NEURONS: dict[str, Callable[[int], Neuron]] = {
    "tanh": lambda classes: TanhNeuron(),
    "softmax_intercept": lambda classes: SoftmaxNeuron(classes, intercept=True),
    "softmax": SoftmaxNeuron,
    # One output is enough for two classes and for a real target: that is the paper's neuron.
    "tanh_outputs": lambda classes: TanhOutputsNeuron(classes) if classes > 2 else TanhNeuron(),
}
"""Every neuron by name, as a function of the number of classes. The first neuron of a task is the task's default."""
