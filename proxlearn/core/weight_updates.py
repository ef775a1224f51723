"""Weight updates, which a step computes after it has moved the particles, and systematic resampling.

All three updates minimise, over rho of the same total mass, a distance from rho_{k-1} plus h <w + log(rho)/beta, rho>,
with w frozen at the old cloud. *Proximal*: the distance is the entropic transport cost (Algorithm 1), so mass moves
between neighbours only. *Fisher-Rao*: the distance is the relative entropy, so mass moves between any two particles,
and the minimiser has a closed form: rho ~ (rho_{k-1} exp(-h w))^(1 / (1 + h/beta)). *Uniform*: the distance is infinite
unless rho = rho_{k-1}, so the weights do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from proxlearn.core import options, proximal
from proxlearn.core.cloud import PointCloud
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.choice import make_kernel
from proxlearn.core.metrics import effective_sample_size
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.registry import WEIGHTS_GROUP, Registry

Update = Callable[[PointCloud, Tensor, Tensor, Hyper, Tensor], tuple[Tensor, ProximalSolution | None]]
"""Function of (cloud_{k-1}, Theta_k, w, hyperparameters, z0) that returns log rho_k and the proximal solution.

The solution is None for updates without a proximal step. An update must not modify its arguments or keep references to
them, because the compiled step reuses their memory."""


def proximal_weights(
    cloud: PointCloud, theta: Tensor, w: Tensor, hyper: Hyper, z0: Tensor
) -> tuple[Tensor, ProximalSolution]:
    rows, columns = cost_rows_columns(cloud.theta, theta, hyper.orientation)
    kernel = make_kernel(hyper.kernel, rows, columns, hyper.epsilon)
    log_xi = -hyper.beta * w - 1
    solution = proximal.solve(
        kernel, cloud.log_rho, log_xi, hyper.kappa, z0.log(), hyper.delta, hyper.L, hyper.tolerance
    )
    return solution.log_rho, solution


def uniform_weights(cloud: PointCloud, theta: Tensor, w: Tensor, hyper: Hyper, z0: Tensor) -> tuple[Tensor, None]:
    return cloud.log_rho, None


def fisher_rao_weights(cloud: PointCloud, theta: Tensor, w: Tensor, hyper: Hyper, z0: Tensor) -> tuple[Tensor, None]:
    log_rho = (cloud.log_rho - hyper.h * w) / (1 + hyper.h / hyper.beta)
    return log_rho + (torch.logsumexp(cloud.log_rho, 0) - torch.logsumexp(log_rho, 0)), None


UPDATES: Registry[Update] = Registry(
    "weight update",
    WEIGHTS_GROUP,
    {"proximal": proximal_weights, "uniform": uniform_weights, "fisher_rao": fisher_rao_weights},
)
"""The weight updates by name; an entry point of the group ``proxlearn.weights`` must be an ``Update``."""


def cost_rows_columns(old: Tensor, new: Tensor, orientation: options.Orientation) -> tuple[Tensor, Tensor]:
    """Return the locations to which the rows and the columns of the cost matrix belong.

    The constraint M 1 = rho_{k-1} assigns row i to the old cloud; in the paper, however, row i belongs to the new
    cloud.
    """
    return (new, old) if orientation == "paper" else (old, new)


def ess_below(cloud: PointCloud, threshold: float) -> bool:
    """Return whether the effective sample size is below ``threshold`` times the number of particles."""
    return float(effective_sample_size(cloud.log_rho)) < threshold * len(cloud.log_rho)


def resample_systematic(cloud: PointCloud, u: float) -> PointCloud:
    """Return the cloud resampled to N particles of equal weight, with a single random number u in [0, 1).

    A particle with a share s of the mass is drawn floor(N s) or ceil(N s) times, and N s times on average; no other
    unbiased scheme changes the cloud less.
    """
    N = len(cloud.log_rho)
    edges = torch.softmax(cloud.log_rho, dim=0).cumsum(0)
    places = (torch.arange(N, dtype=torch.float64, device=edges.device) + u) / N
    chosen = torch.searchsorted(edges, places, right=True).clamp_max(N - 1)
    log_rho = torch.logsumexp(cloud.log_rho, 0) - math.log(N)
    # The neighbour list refers to particles by index, and the indices have changed.
    return replace(cloud, theta=cloud.theta[chosen], log_rho=log_rho.expand(N).clone(), screen=None)
