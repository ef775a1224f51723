"""One recursion of proximal mean field learning: Algorithms 1 and 2 of the paper in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from proxlearn.core import proximal
from proxlearn.core.cloud import PointCloud
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernel import offdiagonal_share
from proxlearn.core.problem import Problem
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.risk import potentials
from proxlearn.core.weights import UPDATES, cost_rows_columns


@dataclass(frozen=True)
class Info:
    """Diagnostics of one proximal step; the costlier figures are computed on demand."""

    previous: PointCloud
    theta: Tensor
    hyper: Hyper
    w: Tensor
    solution: ProximalSolution

    @property
    def stopped(self) -> bool:
        """Whether the proximal step met its tolerance within L rounds."""
        return self.solution.stopped

    @property
    def finite(self) -> bool:
        """Whether the step has already established that its cloud is finite, which saves a check."""
        return False

    def prox_objective(self) -> tuple[Tensor, Tensor]:
        """Return the value of the proximal objective before and after the step."""
        cost_stay = (self.theta - self.previous.theta).square().sum(1)
        hyper = self.hyper
        return proximal.objective(
            self.solution, self.previous.log_rho, cost_stay, self.w, hyper.beta, hyper.h, hyper.epsilon
        )

    def weights_change(self) -> Tensor:
        """Return the largest relative change of a weight, as |change of log rho|; 0 where no weight changed."""
        return (self.solution.log_rho - self.previous.log_rho).abs().amax()

    def kernel_offdiag(self) -> Tensor:
        """Return the largest share of its mass that a particle sends to other particles.

        A share of a heavy particle that is below rounding may still change the weight of a light one: see
        ``weights_change``.
        """
        rows, columns = cost_rows_columns(self.previous.theta, self.theta, self.hyper.orientation)
        return offdiagonal_share(rows, columns, self.solution.log_z, self.hyper.epsilon)


def step(
    problem: Problem, cloud: PointCloud, hyper: Hyper, noise: Tensor, z0: Tensor
) -> tuple[PointCloud, Info | None]:
    """Compute (Theta, rho)_k from (Theta, rho)_{k-1}; a pure function: the same inputs give the same bits.

    ``noise`` is standard normal, N x p; ``z0`` uniform on (0, 1], N. Info is None where the weight update
    is not the proximal one.
    """
    current = potentials(problem, cloud.theta, cloud.rho, hyper.drift)
    theta = cloud.theta - hyper.h * current.gradient + hyper.diffusion * noise
    w = current.potential(hyper.prox_potential)
    log_rho, solution = UPDATES[hyper.weights](cloud, theta, w, hyper, z0)
    info = None if solution is None else Info(cloud, theta, hyper, w, solution)
    return PointCloud(theta, log_rho, cloud.step + 1), info
