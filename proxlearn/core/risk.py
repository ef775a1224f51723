"""The risk F, its potentials v and U rho, and the gradient that moves the particles."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxlearn.core.options import Drift, Potential
from proxlearn.core.problem import Problem


@dataclass(frozen=True)
class Potentials:
    """The potentials of F at the particles, and the gradient that the drift follows."""

    v: Tensor
    """Drift potential, N: -(2/n) P y."""
    u: Tensor
    """Interaction potential, N: U rho = (1/n) P P^T rho."""
    gradient: Tensor
    """Gradient of the chosen drift's potential with respect to theta, N x p."""

    def potential(self, which: Potential) -> Tensor:
        """Return w, the part of the proximal objective that is linear in rho (h w per unit of mass)."""
        return self.v + self.u if which == "paper" else self.v + 2 * self.u


def potentials(problem: Problem, theta: Tensor, rho: Tensor, drift: Drift) -> Potentials:
    """Return v, U rho and the drift's gradient in O(N n n_x): U is never formed (the paper forms it: O(N^2 n n_x))."""
    n, y = len(problem.samples), problem.samples.y.reshape(-1)
    response = problem.neuron.respond(theta, problem.samples)
    if drift == "paper":
        # Gradient of sum_k (u_k + v_k), which is what Backward(u + v) computes: theta_i enters u_i directly and
        # every other u_k through U's i-th column, hence the second term, s = P^T 1.
        r, s = response.over_particles(torch.stack((rho, torch.ones_like(rho)), dim=1)).unbind(1)
        gradient = response.pull_back((r - 2 * y) / n, rho, s / n)
    else:
        # Gradient of the first variation v + 2 U rho of F = F0 + <v, rho> + rho^T U rho.
        r = response.over_particles(rho[:, None])[:, 0]
        gradient = response.pull_back((r - y) * (2 / n))
    inner_y, inner_r = response.over_samples(torch.stack((y, r), dim=1)).unbind(1)
    return Potentials(v=inner_y * (-2 / n), u=inner_r / n, gradient=gradient)


def risk(f: Tensor, y: Tensor) -> Tensor:
    """Return the paper's unregularised F: the mean over the samples of (y - f)^2, summed over the outputs."""
    mean = (y - f).square().mean()
    return mean * len(y) if y.ndim == 2 else mean
