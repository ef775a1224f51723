"""The protocol of a neuron: Phi(x, theta), its pull-back to theta, and the coordinates of theta.

A neuron is evaluated for a whole cloud at once. ``respond`` evaluates P(i,m) = Phi(x_m, theta_i) and returns a
*response*, which provides only the three operations that the recursion needs: P^T times vectors over the particles, P
times vectors over the data, and the gradient of <G, P> with respect to theta for cotangents of the form G(i,m) = c_m +
rho_i d_m. Every drift of this method has that form, so P's Jacobian is never stored and no N x N matrix is formed.
``outputs`` is used for predictions and does not depend on labels.

A neuron defines ``outputs`` and its coordinates. The response uses automatic differentiation unless the neuron
overrides ``respond`` with closed forms; tests compare the two.
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
    """The outputs P(i,m) = Phi(x_m, theta_i) of all particles for all samples.

    A response is accessed only through products with P, so that each neuron may choose the cheapest storage.
    """

    @abstractmethod
    def over_particles(self, weights: Tensor) -> Tensor:
        """Return the product P^T @ weights, n x k, for weights of shape N x k."""

    @abstractmethod
    def over_samples(self, vectors: Tensor) -> Tensor:
        """Return the product P @ vectors, N x k, for vectors of shape n x k."""

    @abstractmethod
    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        """Return the gradient of sum_im G(i,m) P(i,m) with respect to theta, N x p, for G(i,m) = c_m + rho_i d_m."""

    def stored_bytes(self) -> int | None:
        """Return the number of bytes that the response stores besides theta and the samples, or None if it is unknown.

        A ``TiledResponse`` does not store tiles of unknown size; it computes them again for every operation.
        """
        return None


class Neuron(ABC):
    """One hidden unit as a function of its parameter vector.

    The neuron is the function Phi of equation :eq:`network` in :doc:`/theory/mean_field`. Subclasses define ``name``,
    ``coordinates`` and ``outputs``, and also ``num_outputs`` if it is not 1.

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
    """Number of outputs C."""
    losses: ClassVar[tuple[str, ...] | None] = None
    """Names of the losses with which the neuron can be trained, or None for every loss."""

    @property
    def width(self) -> int:
        """Number of values that a response computes per particle and sample; it determines the size of the tiles."""
        return self.num_outputs

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks for which a cloud of these neurons can be trained."""
        return ("binary", "regression") if self.num_outputs == 1 else ("multiclass", "regression")

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the neuron in configs and files."""

    @abstractmethod
    def coordinates(self, n_x: int) -> dict[str, int]:
        """Return the names and lengths of the blocks of theta, in order.

        Parameters
        ----------
        n_x : int
            Number of features.

        Returns
        -------
        dict of str to int
        """

    @abstractmethod
    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        """Return the outputs for unlabelled samples, N x outputs x n, as real numbers or as C probabilities.

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Parameters of the particles.
        X : Tensor, shape (n, n_x)
            Features of the samples.

        Returns
        -------
        Tensor, shape (N, outputs, n)
            Real numbers, or C probabilities for the softmax neuron.
        """

    def initial_deviations(self, n_x: int, scale: float) -> dict[str, float]:
        """Return the standard deviation of each block of theta in a normal initial cloud of scale ``scale``.

        Parameters
        ----------
        n_x : int
            Number of features.
        scale : float
            Scale of the initial cloud, ``init_scale``.

        Returns
        -------
        dict of str to float
        """
        return {name: scale / math.sqrt(max(1, length)) for name, length in self.coordinates(n_x).items()}

    def targets(self, labels: Tensor) -> Tensor:
        """Return the float64 targets for n class indices.

        For one output, they are -1 and +1, shape (n,); for C outputs, they are one-hot, shape (C, n).

        Parameters
        ----------
        labels : Tensor, shape (n,)
            Class indices 0 .. C-1.

        Returns
        -------
        Tensor, shape (n,) or (C, n)
        """
        if self.num_outputs == 1:
            return 2.0 * labels.double() - 1.0
        return torch.nn.functional.one_hot(labels, self.num_outputs).T.double().contiguous()

    def phi(self, theta: Tensor, samples: Samples) -> Tensor:
        """Return the matrix P of the outputs for the samples, as a differentiable tensor.

        P is N x n; with several outputs, it is N x (outputs n), ordered by output.

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Parameters of the particles.
        samples : Samples
            Features and targets as tensors.

        Returns
        -------
        Tensor, shape (N, n) or (N, outputs n)
        """
        return self.outputs(theta, samples.X).flatten(1)

    def respond(self, theta: Tensor, samples: Samples) -> Response:
        """Return the matrix P of ``phi`` as a response, which provides the operations that the recursion needs.

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Parameters of the particles.
        samples : Samples
            Features and targets as tensors.

        Returns
        -------
        Response
        """
        return AutodiffResponse(self, theta, samples)


class AutodiffResponse(Response):
    """A response that stores P and computes the pull-back by automatic differentiation, tile by tile.

    The memory is O(N n) for P and O(tile) for the tape. If there is a single tile, the first ``pull_back`` uses the
    tape of the forward pass; otherwise, ``pull_back`` repeats the forward pass of each tile.
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
        """Return the parameters of a tile's particles, and the rows of P that are computed from them on the tape."""
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
