"""The activations sigma of the neurons a sigma(<w, x> + b): functions of a real number, applied entry by entry.

An activation needs only its function; the derivative uses automatic differentiation unless it is given in closed form.
Closed forms receive z and sigma(z), because several derivatives are cheapest to compute from the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from proxlearn.errors import InputError, did_you_mean

__all__ = ["ACTIVATIONS", "Activation", "find_activation"]


@dataclass(frozen=True)
class Activation:
    """A scalar function sigma and its derivative.

    Parameters
    ----------
    name : str
        Name of the activation in configs and files.
    function : callable
        sigma, applied to a tensor of any shape entry by entry.
    closed_derivative : callable, optional
        ``(z, sigma(z)) -> sigma'(z)``; by default, automatic differentiation is used.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> square = pl.neurons.Activation("square", torch.square)
    >>> z = torch.tensor([1.0, 3.0])
    >>> square.derivative(z, square.function(z))
    tensor([2., 6.])
    """

    name: str
    function: Callable[[Tensor], Tensor]
    closed_derivative: Callable[[Tensor, Tensor], Tensor] | None = None

    def derivative(self, z: Tensor, value: Tensor) -> Tensor:
        """Return sigma'(z); ``value`` is sigma(z).

        Parameters
        ----------
        z : Tensor
            Arguments, of any shape.
        value : Tensor, same shape
            sigma(z), from which a closed form may be computed.

        Returns
        -------
        Tensor, same shape
        """
        if self.closed_derivative is not None:
            return self.closed_derivative(z, value)
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.function(z).sum(), z)
        return slope


def _softplus(z: Tensor) -> Tensor:
    # torch's own softplus is linear above a threshold, where its derivative differs from sigmoid by 2e-9.
    return torch.logaddexp(z, torch.zeros_like(z))


# Derivatives are named functions, because a lambda cannot be pickled, and a fitted estimator holds its activation.
def _tanh_derivative(z: Tensor, value: Tensor) -> Tensor:
    return 1 - value * value


def _relu_derivative(z: Tensor, value: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


def _softplus_derivative(z: Tensor, value: Tensor) -> Tensor:
    return torch.sigmoid(z)


def _sigmoid_derivative(z: Tensor, value: Tensor) -> Tensor:
    return value * (1 - value)


def _cos_derivative(z: Tensor, value: Tensor) -> Tensor:
    return -torch.sin(z)


def _gelu_derivative(z: Tensor, value: Tensor) -> Tensor:
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    # erf is vectorised; torch's own normal distribution function takes several times as long.
    return (1 + torch.erf(z / math.sqrt(2))) / 2 + z * density


ACTIVATIONS: dict[str, Activation] = {
    activation.name: activation
    for activation in (
        Activation("tanh", torch.tanh, _tanh_derivative),
        Activation("relu", torch.relu, _relu_derivative),
        Activation("gelu", torch.nn.functional.gelu, _gelu_derivative),
        Activation("softplus", _softplus, _softplus_derivative),
        Activation("sigmoid", torch.sigmoid, _sigmoid_derivative),
        Activation("cos", torch.cos, _cos_derivative),
    )
}
"""Activations by their name in a config."""


def find_activation(name: str) -> Activation:
    """Return the built-in activation called ``name``; raise InputError for an unknown name."""
    if name not in ACTIVATIONS:
        raise InputError(f"unknown activation `{name}`", did_you_mean(name, ACTIVATIONS))
    return ACTIVATIONS[name]
