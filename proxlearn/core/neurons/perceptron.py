"""The neurons ``a sigma(<w, x> + b)`` for any activation and one or several outputs, with explicit gradients.

With sigma = tanh and one output, the neuron is the one that the paper uses for two classes and for real targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from proxlearn.core.neurons.activations import ACTIVATIONS, Activation, find_activation
from proxlearn.core.neurons.neuron import Neuron, Response
from proxlearn.core.samples import Samples
from proxlearn.errors import InputError
from proxlearn.validators import whole

__all__ = ["Perceptron"]


@dataclass(frozen=True, init=False)
class Perceptron(Neuron):
    """The neuron Phi(x, theta) = a sigma(<w, x> + b) with theta = (a, b, w), where a is in R^C for C outputs.

    Parameters
    ----------
    activation : Activation or str, default="tanh"
        sigma: tanh, relu, gelu, softplus, sigmoid, cos, or a user-defined Activation.
    num_outputs : int, default=1
        Number of outputs C. Several outputs are used for one-hot or vector targets; the recursion then treats each pair
        of a sample m and an output c as one of C n samples, with P(i, (c, m)) = a_ic sigma(z_im).

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> neuron = pl.neurons.Perceptron("softplus", num_outputs=3)
    >>> neuron.coordinates(n_x=2)
    {'a': 3, 'b': 1, 'w': 2}
    >>> neuron.outputs(torch.zeros(5, 6), torch.zeros(7, 2)).shape
    torch.Size([5, 3, 7])
    """

    activation: Activation
    num_outputs: int

    def __init__(self, activation: Activation | str = "tanh", num_outputs: int = 1) -> None:
        sigma = find_activation(activation) if isinstance(activation, str) else activation
        if not isinstance(sigma, Activation):
            name = getattr(sigma, "__name__", "mine")
            remedy = f"give a name, or neurons.Activation({name!r}, {name})"
            raise InputError(f"activation is {sigma!r:.100}, not an Activation", remedy)
        if sigma.name in ACTIVATIONS and sigma != ACTIVATIONS[sigma.name]:
            # The name selects the compiled functions and is stored in files.
            raise InputError(f"an activation called `{sigma.name}` already exists", "choose another name")
        object.__setattr__(self, "activation", sigma)
        object.__setattr__(self, "num_outputs", whole("the number of outputs of a neuron", num_outputs, 1))

    @property
    def name(self) -> str:
        """Name of the neuron in configs and in model.json, which stores the activation separately."""
        return "tanh" if self.num_outputs == 1 else "tanh_outputs"

    def coordinates(self, n_x: int) -> dict[str, int]:
        return {"a": self.num_outputs, "b": 1, "w": n_x}

    def initial_deviations(self, n_x: int, scale: float) -> dict[str, float]:
        # <w, x> is of the order of ``scale`` for any number of standardised features.
        return {"a": 1.0, "b": scale, "w": scale / math.sqrt(n_x)}

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        values = self.activation.function(self._inner(theta, X))
        return theta[:, : self.num_outputs, None] * values[:, None]

    def respond(self, theta: Tensor, samples: Samples) -> Response:
        z = self._inner(theta, samples.X)
        values, a = self.activation.function(z), theta[:, : self.num_outputs]
        response = OneOutputResponse if self.num_outputs == 1 else SeveralOutputsResponse
        return response(a, values, samples.X, self.activation, z)

    def _inner(self, theta: Tensor, X: Tensor) -> Tensor:
        """Return z = <w, x> + b, N x n."""
        C = self.num_outputs
        return torch.addmm(theta[:, C : C + 1], theta[:, C + 1 :], X.T)


class OneOutputResponse(Response):
    """The response P_im = a_i T_im with T = sigma(z); all products use T, so P is not formed."""

    def __init__(self, a: Tensor, T: Tensor, X: Tensor, activation: Activation, z: Tensor) -> None:
        self.a, self.T, self.X, self.activation, self.z = a, T, X, activation, z

    def over_particles(self, weights: Tensor) -> Tensor:
        return self.T.T @ (self.a * weights)

    def over_samples(self, vectors: Tensor) -> Tensor:
        return self.a * (self.T @ vectors)

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        # d/da = sum_m G T;  d/db = a sum_m G S;  d/dw = a sum_m G S x_m, with S = sigma'(z).
        if rho is None or d is None:
            grad_a = self.T @ c[:, None]
            G = c
        else:
            inner = self.T @ torch.stack((c, d), dim=1)
            grad_a = inner[:, :1] + rho[:, None] * inner[:, 1:]
            G = torch.addcmul(c, rho[:, None], d)
        GS = G * self.activation.derivative(self.z, self.T)
        return torch.cat((grad_a, self.a * GS.sum(1, keepdim=True), self.a * (GS @ self.X)), dim=1)

    def stored_bytes(self) -> int:
        return self.T.nbytes + self.z.nbytes


class SeveralOutputsResponse(Response):
    """The response P_i(c,m) = a_ic T_im with T = sigma(z); all products use T, so P, which is larger, is not formed."""

    def __init__(self, a: Tensor, T: Tensor, X: Tensor, activation: Activation, z: Tensor) -> None:
        self.a, self.T, self.X, self.activation, self.z = a, T, X, activation, z

    def over_particles(self, weights: Tensor) -> Tensor:
        columns = [((self.a * column[:, None]).T @ self.T).flatten() for column in weights.unbind(1)]
        return torch.stack(columns, dim=1)

    def over_samples(self, vectors: Tensor) -> Tensor:
        return torch.stack([(self.a * self._inner(column)).sum(1) for column in vectors.unbind(1)], dim=1)

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        # d/da_c = sum_m G_c T;  with g = sum_c a_c G_c: d/db = sum_m g S, d/dw = sum_m g S x_m, S = sigma'(z).
        grad_a, g = self._inner(c), self.a @ self._by_output(c)
        if rho is not None and d is not None:
            grad_a = grad_a + rho[:, None] * self._inner(d)
            g = g + rho[:, None] * (self.a @ self._by_output(d))
        gS = g * self.activation.derivative(self.z, self.T)
        return torch.cat((grad_a, gS.sum(1, keepdim=True), gS @ self.X), dim=1)

    def stored_bytes(self) -> int:
        return self.T.nbytes + self.z.nbytes

    def _by_output(self, vector: Tensor) -> Tensor:
        """Return a vector of length C n as a C x n matrix."""
        return vector.view(self.a.shape[1], self.T.shape[1])

    def _inner(self, vector: Tensor) -> Tensor:
        """Return T V^T, N x C, where V is the vector as a C x n matrix."""
        return self.T @ self._by_output(vector).T
