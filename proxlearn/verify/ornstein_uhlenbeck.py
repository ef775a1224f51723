"""The Ornstein-Uhlenbeck flow: V(theta) = |theta|^2 / 2 and beta = 1, from N(mean, 1/4) to the standard normal."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr
from torch import Tensor

from proxlearn.core.functionals.energy import Energy
from proxlearn.verify.finite_volumes import GridFlow, Potential
from proxlearn.verify.gaussian_flow import GaussianFlow


def potential(theta: Tensor) -> Tensor:
    return theta.square().sum() / 2


class OrnsteinUhlenbeck(GaussianFlow):
    """The flow in ``p`` dimensions, whose initial mean is ``mean`` in every coordinate."""

    moments = ("mean", "second")

    def __init__(self, p: int, mean: float = 1.0) -> None:
        super().__init__(Energy(V=potential, p=p), p, stiffness=1.0, attraction=0.0, mean=mean, variance=0.25)
        self.name = f"ornstein_uhlenbeck-{p}"


class OrnsteinUhlenbeckOnGrid(GridFlow):
    """The same flow in one dimension by finite volumes, whose error is therefore known."""

    name, beta, horizon = "ornstein_uhlenbeck-1", 1.0, 1.0
    low, high = -6.0, 6.0
    components = ((1.0, 1.0, 0.5),)

    def __init__(self) -> None:
        self.functional = Energy(V=potential, p=1)

    def potential(self, x: np.ndarray) -> Potential:
        values = x**2 / 2
        return lambda masses: values

    def exact_masses(self, edges: np.ndarray) -> np.ndarray:
        """Return the masses of cells at the horizon in closed form."""
        flow = OrnsteinUhlenbeck(1)
        deviation = math.sqrt(flow.variance(self.horizon))
        return np.diff(ndtr((edges - flow.mean(self.horizon)) / deviation))
