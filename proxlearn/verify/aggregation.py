"""Aggregation in one dimension: W(theta, theta') = -exp(-(theta - theta')^2 / 2), beta = 5; two groups meet."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.functionals.energy import Energy
from proxlearn.verify.finite_volumes import GridFlow, Potential


def attraction(theta: Tensor, other: Tensor) -> Tensor:
    return -torch.exp(-(theta - other).square().sum() / 2)


class Aggregation(GridFlow):
    """The flow of a mixture of N(-0.9, 0.3^2) and N(0.9, 0.4^2) that attracts itself."""

    name, beta, horizon = "aggregation", 5.0, 1.0
    low, high = -5.0, 5.0
    components = ((0.5, -0.9, 0.3), (0.5, 0.9, 0.4))

    def __init__(self) -> None:
        self.functional = Energy(W=attraction, p=1)

    def potential(self, x: np.ndarray) -> Potential:
        kernel = -2 * np.exp(-((x[:, None] - x) ** 2) / 2)
        return lambda masses: kernel @ masses
