"""Conversions and checks of the neuron and the loss of a Risk; the checks evaluate each of them once."""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch import Tensor

from proxlearn.core import options
from proxlearn.core.losses import Loss, find_loss
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.registry import NEURONS
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.samples import Samples
from proxlearn.core.targets import count_outputs
from proxlearn.core.tasks import class_probabilities
from proxlearn.errors import USER_ERRORS, InputError, did_you_mean
from proxlearn.printable_text import counted

__all__ = ["as_loss", "as_neuron", "check_loss", "check_neuron", "check_probabilities"]


def as_loss(loss: Any) -> Loss:
    """Return the Loss for an object or a name; raise InputError for anything else."""
    if isinstance(loss, str):
        return find_loss(loss)
    if not isinstance(loss, Loss):
        remedy = f"give an object, {loss.__name__}()" if isinstance(loss, type) else "give a Loss object"
        raise InputError(f"loss is {_describe(loss)}, not a Loss", f"{remedy}, or a name such as loss='logistic'")
    # Closed forms and the encoding of the targets are selected by name.
    if loss.name in get_args(options.Loss) and type(loss).value is not type(find_loss(loss.name)).value:
        raise InputError(f"a loss called `{loss.name}` already exists", "give your loss another value of `name`")
    return loss


def as_neuron(neuron: Any, y: Tensor, loss: Loss) -> Neuron:
    """Return the Neuron for an object or a name; None selects the tanh neuron.

    The name of an activation selects the neuron a sigma(<w, x> + b) with the number of outputs that y and the loss
    need; other names are looked up in the registry.
    """
    if neuron is None or (isinstance(neuron, str) and neuron in ACTIVATIONS):
        return Perceptron(neuron or "tanh", num_outputs=count_outputs(y, loss))
    if isinstance(neuron, str):
        if neuron not in NEURONS:
            raise InputError(f"unknown neuron `{neuron}`", did_you_mean(neuron, {*ACTIVATIONS, *NEURONS}))
        classes = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
        return NEURONS.make(neuron, Neuron, classes)  # type: ignore[type-abstract]
    if not isinstance(neuron, Neuron):
        remedy = "give an object, such as neurons.Tanh() or neurons.FunctionNeuron(phi, blocks)"
        raise InputError(f"neuron is {_describe(neuron)}, not a Neuron", remedy)
    if neuron.name in get_args(options.Neuron) and not isinstance(neuron, Perceptron | Softmax):
        # Compiled functions are selected by name.
        raise InputError(f"a neuron called `{neuron.name}` already exists", "choose another name")
    return neuron


def check_neuron(neuron: Neuron, samples: Samples) -> None:
    """Evaluate a neuron for one particle and one sample; raise InputError if this fails or a shape is wrong."""
    sample = samples.take_rows(torch.arange(1, device=samples.X.device))
    theta = torch.zeros(1, num_parameters(neuron, samples.X.shape[1]), dtype=samples.X.dtype, device=samples.X.device)
    try:
        shape = tuple(neuron.phi(theta, sample).shape)
    except USER_ERRORS as error:
        n_x = samples.X.shape[1]
        problem = f"the neuron `{neuron.name}` cannot be evaluated for one particle and one sample: {error}"
        remedy = f"check the blocks of theta and the operations; x has {counted(n_x, 'feature')}"
        raise InputError(problem, remedy) from error
    if shape != (1, sample.y.numel()):
        problem = f"the neuron `{neuron.name}` returned the shape {shape} for one sample, not {(1, sample.y.numel())}"
        raise InputError(problem, "make outputs(theta, X) return a tensor of shape N x outputs x n")


def check_loss(loss: Loss, y: Tensor) -> None:
    """Evaluate a loss once at outputs of 0; raise InputError if this fails or a shape is wrong.

    If ``value`` returned the mean over the samples, the first variation would be too small by a factor of n.
    """
    f = torch.zeros_like(y)
    try:
        value, slope = loss.value(f, y), loss.derivative(f, y)
    except USER_ERRORS as error:
        problem = f"the loss `{loss.name}` cannot be evaluated for outputs of the shape {tuple(f.shape)}: {error}"
        raise InputError(problem, "use only torch operations on f and y, which have the same shape") from error
    for name, returned, shape in (("value", value, y.shape[-1:]), ("derivative", slope, y.shape)):
        if not isinstance(returned, Tensor) or returned.shape != shape:
            what = (
                f"a tensor of the shape {tuple(returned.shape)}"
                if isinstance(returned, Tensor)
                else _describe(returned)
            )
            remedy = "return one number per sample" + (", summed over the outputs with .sum(0)" if y.ndim == 2 else "")
            problem = f"`{name}` of the loss `{loss.name}` returned {what} for outputs of the shape {tuple(f.shape)}"
            raise InputError(problem, remedy if name == "value" else "return a tensor of the shape of f")


def check_probabilities(loss: Loss, outputs: int) -> None:
    """Evaluate the class probabilities of a loss at seven samples; raise InputError if this fails or a sum is wrong."""
    f = torch.linspace(-3, 3, 7, dtype=torch.float64) * torch.linspace(1, -1, outputs, dtype=torch.float64)[:, None]
    try:
        class_probabilities(loss, f)
    except USER_ERRORS as error:
        problem = f"`probabilities` of the loss `{loss.name}` cannot be evaluated for outputs of the shape"
        raise InputError(f"{problem} {tuple(f.shape)}: {error}", "use only torch operations on f") from error


def _describe(value: Any) -> str:
    """Describe an invalid argument for an error message."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"the function {value.__name__}" if hasattr(value, "__name__") else f"{value!r:.100}"
