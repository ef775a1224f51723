"""A double well in one dimension: V(theta) = (theta^2 - 1)^2, beta = 2, from N(0.4, 0.4^2) into both wells."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from proxlearn.core.functionals.energy import Energy
from proxlearn.verify.finite_volumes import GridFlow, Potential


def well(theta: Tensor) -> Tensor:
    return (theta.square() - 1).square().sum()


class DoubleWell(GridFlow):
    """The flow, which is linear in the distribution."""

    name, beta, horizon = "double_well", 2.0, 1.0
    low, high = -3.0, 3.0
    components = ((1.0, 0.4, 0.4),)
    moments = ("mean", "second")

    def __init__(self) -> None:
        self.functional = Energy(V=well, p=1)

    def potential(self, x: np.ndarray) -> Potential:
        values = (x**2 - 1) ** 2
        return lambda masses: values
