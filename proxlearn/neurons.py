"""Neurons Phi(x, theta), the hidden units of the network.

``Tanh``, ``Relu``, ``Gelu``, ``Softplus``, ``Sigmoid`` and ``Cos`` return the neuron ``a sigma(<w, x> + b)`` with the
activation sigma of that name, ``Perceptron`` takes the activation as an argument, ``Softmax`` is the paper's neuron for
several classes, and ``FunctionNeuron`` wraps a function ``phi(theta, x)``. ``Neuron`` is the base class of all neurons.

A Risk accepts a neuron as an object; ``register`` gives it a name that ``train`` accepts. An installed package can
provide a neuron through an entry point of the group ``proxlearn.neurons``. The estimators do not accept a neuron of
your own; use ``train`` or the command line instead.
"""

from __future__ import annotations

from collections.abc import Callable

from proxlearn.core.neurons.activations import Activation
from proxlearn.core.neurons.function_neuron import FunctionNeuron
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.registry import NEURONS
from proxlearn.core.neurons.softmax import Softmax

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
    "register",
    "unregister",
]


def Tanh(outputs: int = 1) -> Perceptron:
    """Return the neuron ``a tanh(<w, x> + b)`` with ``outputs`` outputs; with one output, it is the paper's neuron.

    Parameters
    ----------
    outputs : int, default=1
        Number of outputs C; ``a`` has C coordinates, and theta = (a, b, w) has C + 1 + n_x coordinates.

    Returns
    -------
    Perceptron

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.Tanh().coordinates(n_x=4)
    {'a': 1, 'b': 1, 'w': 4}
    """
    return Perceptron("tanh", outputs)


def Relu(outputs: int = 1) -> Perceptron:
    """Return the neuron ``a max(0, <w, x> + b)`` with ``outputs`` outputs.

    Parameters
    ----------
    outputs : int, default=1
        Number of outputs C; ``a`` has C coordinates, and theta = (a, b, w) has C + 1 + n_x coordinates.

    Returns
    -------
    Perceptron

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.Relu(outputs=2).coordinates(n_x=4)
    {'a': 2, 'b': 1, 'w': 4}
    """
    return Perceptron("relu", outputs)


def Gelu(outputs: int = 1) -> Perceptron:
    """Return the neuron ``a gelu(<w, x> + b)`` with ``outputs`` outputs.

    Parameters
    ----------
    outputs : int, default=1
        Number of outputs C; ``a`` has C coordinates, and theta = (a, b, w) has C + 1 + n_x coordinates.

    Returns
    -------
    Perceptron

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.Gelu(outputs=2).coordinates(n_x=4)
    {'a': 2, 'b': 1, 'w': 4}
    """
    return Perceptron("gelu", outputs)


def Softplus(outputs: int = 1) -> Perceptron:
    """Return the neuron ``a log(1 + exp(<w, x> + b))`` with ``outputs`` outputs.

    Parameters
    ----------
    outputs : int, default=1
        Number of outputs C; ``a`` has C coordinates, and theta = (a, b, w) has C + 1 + n_x coordinates.

    Returns
    -------
    Perceptron

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.Softplus(outputs=2).coordinates(n_x=4)
    {'a': 2, 'b': 1, 'w': 4}
    """
    return Perceptron("softplus", outputs)


def Sigmoid(outputs: int = 1) -> Perceptron:
    """Return the neuron ``a / (1 + exp(-<w, x> - b))`` with ``outputs`` outputs.

    Parameters
    ----------
    outputs : int, default=1
        Number of outputs C; ``a`` has C coordinates, and theta = (a, b, w) has C + 1 + n_x coordinates.

    Returns
    -------
    Perceptron

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.Sigmoid(outputs=2).coordinates(n_x=4)
    {'a': 2, 'b': 1, 'w': 4}
    """
    return Perceptron("sigmoid", outputs)


def Cos(outputs: int = 1) -> Perceptron:
    """Return the neuron ``a cos(<w, x> + b)``, a trainable random Fourier feature, with ``outputs`` outputs.

    Parameters
    ----------
    outputs : int, default=1
        Number of outputs C; ``a`` has C coordinates, and theta = (a, b, w) has C + 1 + n_x coordinates.

    Returns
    -------
    Perceptron

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.Cos(outputs=2).coordinates(n_x=4)
    {'a': 2, 'b': 1, 'w': 4}
    """
    return Perceptron("cos", outputs)


def register(name: str, neuron: Neuron | Callable[[int], Neuron]) -> None:
    """Register a neuron in this process, so that ``dataset.neuron=NAME`` in ``train`` and a Risk can select it by name.

    A run folder stores only the name. To continue a run with this neuron, or to predict with it, in another process,
    register the neuron there first. The name of an existing neuron cannot be used.

    Parameters
    ----------
    name : str
        Name of the neuron, consisting of letters, digits and . + - _.
    neuron : Neuron or callable
        The neuron, or a callable that takes the number of classes (0 for a real target) and returns a neuron.

    Notes
    -----
    A run with ``recipe=tuned`` draws a normal initial cloud. Otherwise, ``dataset.initial`` must give an interval for
    every block of theta, for example ``+dataset.initial.c=[-1,1]``.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> def phi(theta, x):
    ...     return theta["a"][0] * torch.sin(theta["w"] @ x)
    >>> def sine_neuron(classes):
    ...     return pl.neurons.FunctionNeuron(phi, lambda n_x: {"a": 1, "w": n_x}, name="sine")
    >>> pl.neurons.register("sine", sine_neuron)
    >>> numbers = ("N=20", "steps=10", "beta=1e4", "h=0.1", "epsilon=1", "init_scale=1")
    >>> run = pl.train("dataset=sine", "recipe=tuned", "dataset.neuron=sine", *numbers, verbose=False, plots=False)
    >>> run.cloud
    PointCloud(N=20, p=2, step=10, float32)
    >>> pl.neurons.unregister("sine")
    """
    NEURONS.register(name, neuron)


def unregister(name: str) -> None:
    """Remove a neuron that was added by ``register``.

    Parameters
    ----------
    name : str
        Name under which the neuron was registered.

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.neurons.register("wide_tanh", pl.neurons.Tanh(outputs=2))
    >>> pl.neurons.unregister("wide_tanh")
    """
    NEURONS.unregister(name)
