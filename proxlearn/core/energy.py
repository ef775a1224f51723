"""The risk, its potentials v and U rho, and the drift: everything F tells a particle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from proxlearn.core.options import Drift, Potential
from proxlearn.core.problem import Problem


@dataclass(frozen=True)
class Potentials:
    """What the cloud feels at its present place."""

    v: Tensor
    """Drift potential, N: -(2/n) P y."""
    u: Tensor
    """Interaction potential, N: U rho = (1/n) P P^T rho."""
    gradient: Tensor
    """Of the chosen drift's potential with respect to theta, N x p."""

    def potential(self, which: Potential) -> Tensor:
        """w, the part of the proximal objective that is linear in rho (h w per unit of mass)."""
        return self.v + self.u if which == "paper" else self.v + 2 * self.u


def potentials(problem: Problem, theta: Tensor, rho: Tensor, drift: Drift) -> Potentials:
    """v, U rho and the drift's gradient in O(N n n_x): U is never formed (the paper's way is O(N^2 n n_x))."""
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
    """The paper's unregularised F: mean over the samples of (y - f)^2, summed over the outputs where there are many."""
    mean = (y - f).square().mean()
    return mean * len(y) if y.ndim == 2 else mean


def weight_entropy(log_rho: Tensor) -> Tensor:
    """sum w log(N w), w = rho / sum rho: divergence of the weights from uniform, between 0 and log N."""
    log_w = torch.log_softmax(log_rho, dim=0)
    # exp(-inf) * -inf is NaN: a particle without mass contributes nothing.
    terms = torch.where(log_w.isneginf(), torch.zeros_like(log_w), log_w.exp() * log_w)
    return terms.sum() + math.log(len(log_rho))


def discrete_free_energy(train_risk: Tensor, log_rho: Tensor, beta: float) -> Tensor:
    """Train risk + (1/beta) sum w log(N w).

    Not the paper's F_beta, whose entropy sees the spread of the cloud: this one only sees its weights.
    """
    return train_risk + weight_entropy(log_rho) / beta


def effective_sample_size(log_rho: Tensor) -> Tensor:
    """(sum rho)^2 / sum rho^2: how many particles the weighted estimate really rests on."""
    log_w = torch.log_softmax(log_rho, dim=0)
    return torch.exp(-torch.logsumexp(2 * log_w, dim=0))
