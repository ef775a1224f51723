"""Quadratic attraction: W(theta, theta') = |theta - theta'|^2 / 4 and beta = 1, from N(1, 1/4) to N(1, 1).

The first variation is (|theta - m|^2 + variance) / 2 with m the mean of the distribution, so that the drift is m -
theta.
"""

from __future__ import annotations

from torch import Tensor

from proxlearn.core.functionals.energy import Energy
from proxlearn.verify.gaussian_flow import GaussianFlow


def interaction(theta: Tensor, other: Tensor) -> Tensor:
    # The product is expanded, because vmap turns it into one matrix product instead of N x N x p differences.
    return (theta @ theta + other @ other) / 4 - theta @ other / 2


class QuadraticInteraction(GaussianFlow):
    """The flow in ``p`` dimensions, in which the mean of the distribution does not move."""

    moments = ("second",)

    def __init__(self, p: int, mean: float = 1.0) -> None:
        super().__init__(Energy(W=interaction, p=p), p, stiffness=0.0, attraction=1.0, mean=mean, variance=0.25)
        self.name = f"quadratic_interaction-{p}"
