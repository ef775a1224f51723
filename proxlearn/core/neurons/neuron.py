"""The protocol of a neuron: Phi(x, theta), its pull-back to theta, and the coordinates of theta.

A neuron is evaluated for a whole cloud at once. ``respond`` evaluates P(i,m) = Phi(x_m, theta_i) and returns a
*response*, which offers only the three operations that the recursion needs: P^T times vectors over the particles,
P times vectors over the data, and the gradient of <G, P> with respect to theta for cotangents of the form
G(i,m) = c_m + rho_i d_m. Every drift of this method has that form, so P's Jacobian is never stored and no
N x N matrix is formed. ``outputs`` is the basis of a prediction and does not depend on labels.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from proxlearn.core.options import Task
from proxlearn.core.samples import Samples


class Response(Protocol):
    """The cloud's response to the samples: only products with P, so each neuron may choose the cheapest storage."""

    def over_particles(self, weights: Tensor) -> Tensor:
        """Return P^T weights: N x k -> n x k."""

    def over_samples(self, vectors: Tensor) -> Tensor:
        """Return P vectors: n x k -> N x k."""

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        """Return the gradient with respect to theta of sum_im G(i,m) P(i,m), G(i,m) = c_m + rho_i d_m: N x p."""


class Neuron(Protocol):
    """One hidden unit as a function of its parameter vector."""

    @property
    def name(self) -> str: ...

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks that a cloud of these neurons can be trained for."""

    def targets(self, labels: Tensor) -> Tensor:
        """Return the regression targets of f for class indices (n): n, or outputs x n; float64."""

    def coordinates(self, n_x: int) -> dict[str, int]:
        """Return the names and lengths of the blocks of theta, in order."""

    def phi(self, theta: Tensor, samples: Samples) -> Tensor:
        """Return P, N x n (several outputs: N x outputs n, the samples of one output together); differentiable, for
        reference computations."""

    def respond(self, theta: Tensor, samples: Samples) -> Response:
        """Return P as a response, which offers the operations that the recursion needs."""

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        """Return the particles' outputs for unlabelled samples, N x (outputs) x n: real numbers, or C probabilities."""


def num_parameters(neuron: Neuron, n_x: int) -> int:
    """Return p, the dimension of one particle."""
    return sum(neuron.coordinates(n_x).values())
