"""The registry of neurons by name; a new neuron is added here, or by another package through an entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxlearn.core.neurons.activations import find_activation
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.registry import NEURON_GROUP, Registry
from proxlearn.errors import InputError

__all__ = ["NEURONS", "make_neuron"]

NEURONS: Registry[Callable[[int], Neuron] | Neuron] = Registry(
    "neuron",
    NEURON_GROUP,
    {
        "tanh": lambda classes: Perceptron(),
        # With real targets, the number of classes is 0.
        "softmax_intercept": lambda classes: Softmax(max(2, classes), intercept=True),
        "softmax": lambda classes: Softmax(max(2, classes)),
        # One output, as in the paper's neuron, is enough for two classes and for a real target.
        "tanh_outputs": lambda classes: Perceptron(num_outputs=classes) if classes > 2 else Perceptron(),
    },
    "a Neuron, or a function that returns one for a number of classes",
    lambda part: isinstance(part, Neuron) or callable(part),
)
"""Neurons by name, as functions of the number of classes. The default neuron of a task is the first of proxlearn's own
neurons that supports the task.

An entry point of the group ``proxlearn.neurons`` is a Neuron, or a function or class that returns a Neuron for a number
of classes.
"""


def make_neuron(name: str, classes: int, activation: str | None, targets: int = 1) -> Neuron:
    """Return the neuron called ``name`` for ``classes`` classes or ``targets`` real targets.

    With ``activation=None``, the neuron keeps its default activation.
    """
    neuron = NEURONS.make(name, Neuron, classes)  # type: ignore[type-abstract]
    if targets > 1:
        if name != "tanh_outputs":
            raise InputError(f"the {name} neuron does not support {targets} targets", "use dataset.neuron=tanh_outputs")
        neuron = Perceptron(num_outputs=targets)
    # The Perceptron of another package keeps the activation that the package chose.
    if isinstance(neuron, Perceptron) and name in NEURONS.own_names:
        return neuron if activation is None else replace(neuron, activation=find_activation(activation))
    if activation not in (None, "tanh"):
        problem = f"activation={activation} does not apply to the {name} neuron"
        raise InputError(problem, "leave activation out, or use dataset.neuron=tanh or dataset.neuron=tanh_outputs")
    return neuron
