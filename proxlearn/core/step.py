"""One step of proximal mean field learning: Algorithms 1 and 2 of the paper in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from proxlearn.core import proximal
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.choice import offdiagonal_share
from proxlearn.core.noise import euler_maruyama
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.weight_updates import UPDATES, cost_rows_columns
from proxlearn.errors import InputError

__all__ = ["REVISION", "Info", "step"]

REVISION = 3
"""Revision of the arithmetic of a step; it is increased whenever the results change, even by rounding.

1: versions up to 0.1. 2: noise from a counter-based generator, blocks of rows that do not depend on the number of
threads, and weights in float64. 3: the same as 2, except for samples with one feature, whose sums are computed in
another order. The results of the revisions agree up to rounding in a single step, and in distribution over a run.
"""


@dataclass(frozen=True, eq=False)
class Info:
    """The diagnostics of one proximal step; the more expensive ones are computed on demand.

    They refer to equations :eq:`objective` and :eq:`round` in :doc:`/theory/recursion`.

    Examples
    --------
    >>> import proxlearn as pl
    >>> well = pl.Energy(V=lambda theta: theta.square().sum(), p=1)
    >>> hyper = pl.Hyper(beta=10.0, h=0.01, epsilon=0.1)
    >>> (cloud, info), = pl.iterate(well, pl.init(well, N=20), hyper, steps=1)
    >>> info.stopped, info.previous.step, cloud.step
    (True, 0, 1)
    >>> before, after = info.prox_objective()
    >>> bool(after <= before)
    True
    """

    previous: PointCloud
    """The cloud before the step."""
    theta: Tensor
    """Locations after the step, shape (N, p)."""
    hyper: Hyper
    """The hyperparameters of the step, with scheduled values filled in."""
    w: Tensor
    """The linear potential of the proximal step, shape (N,)."""
    solution: ProximalSolution
    """The fixed point: log_rho, log_z, log_q, the number of rounds and the changes per round."""

    def __repr__(self) -> str:
        return f"Info(step={self.previous.step + 1}, stopped={self.stopped})"

    @property
    def stopped(self) -> bool:
        """Whether the proximal step met its tolerance within L rounds."""
        return self.solution.stopped

    @property
    def finite(self) -> bool:
        """Whether the step has already established that the new cloud is finite, which saves a check."""
        return False

    def prox_objective(self) -> tuple[Tensor, Tensor]:
        """Return the value of the proximal objective before and after the step.

        Returns
        -------
        before, after : Tensor, scalars
            Objective if every particle keeps its mass, and objective at the solution.
        """
        cost_stay = (self.theta - self.previous.theta).square().sum(1)
        hyper = self.hyper
        return proximal.objective(
            self.solution, self.previous.log_rho, cost_stay, self.w, hyper.beta, hyper.h, hyper.epsilon
        )

    def weights_change(self) -> Tensor:
        """Return the largest relative change of a weight as abs(change of log rho), or 0 if no weight changed.

        Returns
        -------
        Tensor, a scalar
        """
        return (self.solution.log_rho - self.previous.log_rho).abs().amax()

    def kernel_offdiag(self) -> Tensor:
        """Return the share of a particle's mass that is sent to other particles, maximised over the particles.

        If a heavy particle sends a share below the rounding error of its own weight, this mass may still change the
        weight of a light particle; see ``weights_change``.

        Returns
        -------
        Tensor, a scalar between 0 and 1
        """
        rows, columns = cost_rows_columns(self.previous.theta, self.theta, self.hyper.orientation)
        return offdiagonal_share(rows, columns, self.solution.log_z, self.hyper.epsilon)


def step(
    functional: Functional, cloud: PointCloud, hyper: Hyper, noise: Tensor, z0: Tensor
) -> tuple[PointCloud, Info | None]:
    """Compute (Theta, rho)_k from (Theta, rho)_{k-1} as a pure function; equal inputs give bit for bit equal results.

    Data, cloud, ``noise`` (N x p, standard normal) and ``z0`` (N, uniform on (0, 1]) must have the same precision and
    device. ``proxlearn.step`` adds checks and conversions to this function.
    """
    hyper = functional.with_readings(hyper)
    if noise.shape != cloud.theta.shape or z0.shape != cloud.log_rho.shape:
        problem = f"the shape of noise, {tuple(noise.shape)}, or of z0, {tuple(z0.shape)}, does not match the cloud"
        N, p = cloud.theta.shape
        remedy = f"draw a normal tensor of shape ({N}, {p}) for noise and a uniform one of shape ({N},) for z0"
        raise InputError(problem, remedy)
    potentials = functional.potentials(cloud.theta, cloud.rho, hyper)
    theta = euler_maruyama(cloud.theta, potentials.gradient, hyper, noise)
    log_rho, solution = UPDATES[hyper.weights](cloud, theta, potentials.w, hyper, z0)
    info = None if solution is None else Info(cloud, theta, hyper, potentials.w, solution)
    return PointCloud(theta, log_rho, cloud.step + 1), info
