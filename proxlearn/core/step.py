"""One recursion of proximal mean field learning: Algorithms 1 and 2 of the paper in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from proxlearn.core import options, proximal
from proxlearn.core.cloud import PointCloud
from proxlearn.core.energy import potentials
from proxlearn.core.kernel import offdiagonal_share
from proxlearn.core.problem import Problem
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.weights import UPDATES, cost_rows_columns


@dataclass(frozen=True)
class Hyper:
    """The paper's hyperparameters, and the readings of the places where it is ambiguous (options.py)."""

    beta: float
    h: float
    epsilon: float
    delta: float
    L: int
    noise_scale: float = 1.0
    drift: options.Drift = "paper"
    kernel: options.Kernel = "auto"
    orientation: options.Orientation = "paper"
    prox_potential: options.Potential = "paper"
    tolerance: options.Tolerance = "paper"
    weights: options.Weights = "proximal"

    @property
    def kappa(self) -> float:
        return self.beta * self.epsilon / self.h

    @property
    def diffusion(self) -> float:
        """Standard deviation of one Euler-Maruyama increment."""
        return self.noise_scale * math.sqrt(2 * self.h / self.beta)


@dataclass(frozen=True)
class Info:
    """How the proximal step went; the costlier figures are computed only when somebody asks."""

    previous: PointCloud
    theta: Tensor
    hyper: Hyper
    w: Tensor
    solution: ProximalSolution

    @property
    def stopped(self) -> bool:
        """The proximal step met its tolerance within L rounds."""
        return self.solution.stopped

    @property
    def finite(self) -> bool:
        """Whether the step knows already that its cloud is finite, so that nobody need look again."""
        return False

    def prox_objective(self) -> tuple[Tensor, Tensor]:
        """Value of the regularised problem before and after the step."""
        cost_stay = (self.theta - self.previous.theta).square().sum(1)
        hyper = self.hyper
        return proximal.objective(
            self.solution, self.previous.log_rho, cost_stay, self.w, hyper.beta, hyper.h, hyper.epsilon
        )

    def weights_change(self) -> Tensor:
        """Largest relative change of a weight, as |change of log rho|; 0 where the step left all of them alone."""
        return (self.solution.log_rho - self.previous.log_rho).abs().amax()

    def kernel_offdiag(self) -> Tensor:
        """Largest share of its mass that a particle sends to others; a light particle's weight may change by a share
        below rounding of a heavy one's: see ``weights_change``."""
        rows, columns = cost_rows_columns(self.previous.theta, self.theta, self.hyper.orientation)
        return offdiagonal_share(rows, columns, self.solution.log_z, self.hyper.epsilon)


def step(
    problem: Problem, cloud: PointCloud, hyper: Hyper, noise: Tensor, z0: Tensor
) -> tuple[PointCloud, Info | None]:
    """(Theta, rho)_{k-1} -> (Theta, rho)_k; a pure function: the same inputs give the same bits.

    ``noise`` is standard normal, N x p; ``z0`` uniform on (0, 1], N. There is no Info where no proximal step is made.
    """
    now = potentials(problem, cloud.theta, cloud.rho, hyper.drift)
    theta = cloud.theta - hyper.h * now.gradient + hyper.diffusion * noise
    w = now.potential(hyper.prox_potential)
    log_rho, solution = UPDATES[hyper.weights](cloud, theta, w, hyper, z0)
    info = None if solution is None else Info(cloud, theta, hyper, w, solution)
    return PointCloud(theta, log_rho, cloud.step + 1), info
