"""Neurons Phi(x, theta), the hidden units of the network.

``Tanh``, ``Relu``, ``Gelu``, ``Softplus``, ``Sigmoid`` and ``Cos`` return the neuron a sigma(<w, x> + b) with the
activation in their name, ``Perceptron`` takes the activation as an argument, ``Softmax`` is the paper's neuron for
several classes, and ``FunctionNeuron`` is defined by a function phi(theta, x). ``Neuron`` is the base class of all of
them.
"""

from __future__ import annotations

from proxlearn.core.neurons.activations import Activation
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import SoftmaxNeuron as Softmax

__all__ = [
    "Activation",
    "Cos",
    "FunctionNeuron",
    "Gelu",
    "Neuron",
    "Perceptron",
    "Relu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]


def Tanh(outputs: int = 1) -> Perceptron:
    """Return the paper's neuron a tanh(<w, x> + b), which has compiled passes.

    Parameters
    ----------
    outputs : int, default=1
        Number of outputs C: a in R^C, and theta = (a, b, w) has C + 1 + n_x coordinates.

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.Tanh().coordinates(n_x=4)
    {'a': 1, 'b': 1, 'w': 4}
    """
    return Perceptron("tanh", outputs)


def Relu(outputs: int = 1) -> Perceptron:
    """Return the neuron a max(0, <w, x> + b) with ``outputs`` outputs."""
    return Perceptron("relu", outputs)


def Gelu(outputs: int = 1) -> Perceptron:
    """Return the neuron a gelu(<w, x> + b) with ``outputs`` outputs."""
    return Perceptron("gelu", outputs)


def Softplus(outputs: int = 1) -> Perceptron:
    """Return the neuron a log(1 + exp(<w, x> + b)) with ``outputs`` outputs."""
    return Perceptron("softplus", outputs)


def Sigmoid(outputs: int = 1) -> Perceptron:
    """Return the neuron a / (1 + exp(-<w, x> - b)) with ``outputs`` outputs."""
    return Perceptron("sigmoid", outputs)


def Cos(outputs: int = 1) -> Perceptron:
    """Return the neuron a cos(<w, x> + b), a trainable random Fourier feature, with ``outputs`` outputs."""
    return Perceptron("cos", outputs)
