"""Algorithms 1 and 2 as the paper prints them, used as the reference in tests and as the baseline of the bench.

Nothing is rearranged: the code uses automatic differentiation and N x N matrices, and keeps the whole history of z and
q. Three misprints are corrected: D is the *negative* gradient (as printed, line 7 of Algorithm 2 would ascend); z and q
have L + 1 columns, because the loop writes column L + 1; and C is computed from differences, because in float32 the
error of the usual shortcut is a large part of C's diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.step import Info
from proxlearn.errors import InputError


def check_problem(problem: Risk) -> None:
    """Raise InputError if the paper's algorithms do not apply to this risk."""
    features = {
        f"loss={problem.loss.name}": problem.loss.name != "quadratic",
        "confinement": problem.strengths is not None,
        "sample weights": problem.samples.weights is not None,
    }
    for feature, present in features.items():
        if present:
            raise InputError(f"solver=literal does not support {feature}", "use solver=closed_form")


def euler_maruyama(
    problem: Risk, theta: Tensor, rho: Tensor, hyper: Hyper, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run Algorithm 2 and return v_{k-1}, U_{k-1} and Theta_k."""
    theta = theta.detach().requires_grad_()
    n, y = len(problem.samples), problem.samples.y.reshape(-1)
    with torch.enable_grad():
        P = problem.neuron.phi(theta, problem.samples)
        U = P @ P.T / n
        u = U @ rho
        v = -2 / n * (P @ y)
        (gradient,) = torch.autograd.grad((u + v).sum(), theta)
    G = (2 * hyper.h / hyper.beta) ** 0.5 * hyper.noise_scale * noise
    theta_k = theta.detach() - hyper.h * gradient + G
    return v.detach(), U.detach(), theta_k


@dataclass(frozen=True)
class Recursion:
    """All quantities that Algorithm 1 computes in one step."""

    theta: Tensor
    rho: Tensor
    w: Tensor
    C: Tensor
    z: Tensor
    """All iterates, N x (number of columns written)."""
    q: Tensor
    ell: int
    """Column of z and q from which rho is computed."""
    met: bool
    """Whether the tolerance was met."""


def prox_learn(problem: Risk, theta: Tensor, rho: Tensor, hyper: Hyper, noise: Tensor, z0: Tensor) -> Recursion:
    """Run Algorithm 1, which calls Algorithm 2, and return rho_k, Theta_k and the intermediate results."""
    beta, h, epsilon, delta, L = hyper.beta, hyper.h, hyper.epsilon, hyper.delta, hyper.L
    v, U, theta_k = euler_maruyama(problem, theta, rho, hyper, noise)
    C = torch.cdist(theta_k, theta, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    Gamma = torch.exp(-C / (2 * epsilon))
    xi = torch.exp(-beta * v - beta * (U @ rho) - 1)
    z = torch.zeros(len(rho), L + 1, dtype=rho.dtype, device=rho.device)
    q = torch.zeros_like(z)
    z[:, 0] = z0
    q[:, 0] = rho / (Gamma @ z0)
    ell, met = 0, False
    while ell < L:
        z[:, ell + 1] = (xi / (Gamma.T @ q[:, ell])) ** (1 / (1 + beta * epsilon / h))
        q[:, ell + 1] = rho / (Gamma @ z[:, ell + 1])
        change_q = torch.linalg.norm(q[:, ell + 1] - q[:, ell])
        change_z = torch.linalg.norm(z[:, ell + 1] - z[:, ell])
        if change_q < delta and change_z < delta:
            met = True
            break
        ell += 1
    written = ell + 2 if met else ell + 1
    rho_k = z[:, ell] * (Gamma.T @ q[:, ell])
    return Recursion(theta_k, rho_k, v + U @ rho, C, z[:, :written], q[:, :written], ell, met)


def step(problem: Risk, cloud: PointCloud, hyper: Hyper, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info]:
    """Compute one step with the literal algorithms; arguments and results are those of ``core.step.step``."""
    recursion = prox_learn(problem, cloud.theta, cloud.rho, hyper, noise, z0)
    log_z = recursion.z.log()
    changes = log_z.diff(dim=1).abs().amax(dim=0)
    solution = ProximalSolution(
        log_rho=recursion.rho.log(),
        log_z=log_z[:, recursion.ell],
        log_q=recursion.q[:, recursion.ell].log(),
        rounds=len(changes),
        changes=changes,
        delta=hyper.delta,
        stopped=recursion.met,
    )
    return PointCloud(recursion.theta, solution.log_rho, cloud.step + 1), Info(
        cloud, recursion.theta, hyper, recursion.w, solution
    )
