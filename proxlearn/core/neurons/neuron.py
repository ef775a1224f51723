"""The protocol of a neuron: Phi(x, theta), its pull-back to theta, and the coordinates of theta.

A neuron is evaluated for a whole cloud at once. ``respond`` evaluates P(i,m) = Phi(x_m, theta_i) and returns a
*response*, which offers only the three operations that the recursion needs: P^T times vectors over the particles,
P times vectors over the data, and the gradient of <G, P> with respect to theta for cotangents of the form
G(i,m) = c_m + rho_i d_m. Every drift of this method has that form, so P's Jacobian is never stored and no
N x N matrix is formed. ``outputs`` is the basis of a prediction and does not depend on labels.

A neuron defines ``outputs`` and its coordinates; the response is found by automatic differentiation unless the neuron
overrides ``respond`` with closed forms, which tests compare with it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from proxlearn.core.options import Task
from proxlearn.core.samples import Samples

__all__ = ["AutodiffResponse", "Neuron", "Response", "num_parameters"]

TILE_ENTRIES = 2**22
"""Maximum number of entries of P whose tape for automatic differentiation is in memory at once."""


class Response(ABC):
    """The cloud's response to the samples: only products with P, so each neuron may choose the cheapest storage."""

    @abstractmethod
    def over_particles(self, weights: Tensor) -> Tensor:
        """Return the product P^T @ weights: N x k -> n x k."""

    @abstractmethod
    def over_samples(self, vectors: Tensor) -> Tensor:
        """Return the product P @ vectors: n x k -> N x k."""

    @abstractmethod
    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        """Return the gradient with respect to theta of sum_im G(i,m) P(i,m), G(i,m) = c_m + rho_i d_m: N x p."""

    def stored_bytes(self) -> int | None:
        """Return the memory that the response holds beside theta and the samples; None if it is not known.

        A response of unknown size is not kept where memory is short: it is evaluated again.
        """
        return None


class Neuron(ABC):
    """One hidden unit as a function of its parameter vector.

    Subclasses define ``name``, ``coordinates`` and ``outputs``, and ``num_outputs`` where it is not 1.

    Examples
    --------
    A Gaussian bump:

    >>> import torch, proxlearn as pl
    >>> class Bump(pl.neurons.Neuron):
    ...     name = "bump"
    ...     def coordinates(self, n_x):
    ...         return {"height": 1, "centre": n_x}
    ...     def outputs(self, theta, X):
    ...         height, centre = theta[:, :1], theta[:, 1:]
    ...         return (height * torch.exp(-(X - centre[:, None]).square().sum(-1)))[:, None]
    >>> risk = pl.Risk(torch.zeros(10, 2), torch.zeros(10), Bump())
    >>> pl.init(risk, N=5)
    PointCloud(N=5, p=3, step=0, float32)
    """

    num_outputs: int = 1
    """C, the number of outputs."""
    losses: ClassVar[tuple[str, ...] | None] = None
    """Names of the losses that the neuron can be trained with; None: every loss."""

    @property
    def width(self) -> int:
        """Number of values that a response computes per particle and sample, which the size of its tiles follows."""
        return self.num_outputs

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks that a cloud of these neurons can be trained for."""
        return ("binary", "regression") if self.num_outputs == 1 else ("multiclass", "regression")

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the neuron in configs and files."""

    @abstractmethod
    def coordinates(self, n_x: int) -> dict[str, int]:
        """Return the names and lengths of the blocks of theta, in order."""

    @abstractmethod
    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        """Return the particles' outputs for unlabelled samples, N x (outputs) x n: real numbers, or C probabilities."""

    def initial_deviations(self, n_x: int, scale: float) -> dict[str, float]:
        """Return the standard deviation of each block of theta in a normal initial cloud of scale ``scale``."""
        return {name: scale / math.sqrt(max(1, length)) for name, length in self.coordinates(n_x).items()}

    def targets(self, labels: Tensor) -> Tensor:
        """Return the targets of class indices (n), in float64: -1 and +1 (n) for one output, else one-hot (C x n)."""
        if self.num_outputs == 1:
            return 2.0 * labels.double() - 1.0
        return torch.nn.functional.one_hot(labels, self.num_outputs).T.double().contiguous()

    def phi(self, theta: Tensor, samples: Samples) -> Tensor:
        """Return P, N x n (several outputs: N x outputs n, the samples of one output together); differentiable."""
        return self.outputs(theta, samples.X).flatten(1)

    def respond(self, theta: Tensor, samples: Samples) -> Response:
        """Return P as a response, which offers the operations that the recursion needs."""
        return AutodiffResponse(self, theta, samples)


class AutodiffResponse(Response):
    """P of a neuron without closed forms: stored, with its pull-back by automatic differentiation, tile by tile.

    Memory is O(N n) for P and O(tile) for the tape. The tape of a single tile is kept from the forward pass; of several
    tiles the forward pass is repeated by ``pull_back``.
    """

    def __init__(self, neuron: Neuron, theta: Tensor, samples: Samples) -> None:
        self.neuron, self.theta, self.samples = neuron, theta, samples
        self._taped: tuple[Tensor, Tensor] | None = None
        tiles = self._tiles()
        if len(tiles) == 1:
            self._taped = self._forward(tiles[0])
            self.P = self._taped[1].detach()
        else:
            with torch.no_grad():
                self.P = torch.cat([neuron.phi(theta[rows], samples) for rows in tiles])

    def _forward(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return a tile's parameters and its part of P, which depends on them through the tape."""
        theta = self.theta[rows].detach().requires_grad_()
        with torch.enable_grad():
            return theta, self.neuron.phi(theta, self.samples)

    def over_particles(self, weights: Tensor) -> Tensor:
        return self.P.T @ weights

    def over_samples(self, vectors: Tensor) -> Tensor:
        return self.P @ vectors

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        gradients = []
        for rows in self._tiles():
            theta, P = self._taped or self._forward(rows)
            G = c if rho is None or d is None else torch.addcmul(c, rho[rows, None], d)
            gradients.append(torch.autograd.grad(P, theta, G.expand_as(P))[0])
        self._taped = None
        return torch.cat(gradients)

    def _tiles(self) -> list[slice]:
        size = max(1, TILE_ENTRIES // max(1, self.samples.y.numel()))
        return [slice(first, first + size) for first in range(0, len(self.theta), size)]


def num_parameters(neuron: Neuron, n_x: int) -> int:
    """Return p, the dimension of one particle."""
    return sum(neuron.coordinates(n_x).values())
