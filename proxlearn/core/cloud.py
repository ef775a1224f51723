"""The weighted point cloud (theta, rho), and the initial clouds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proxlearn.core.options import Rho0


@dataclass(frozen=True)
class Screen:
    """What determines a neighbour list: the cloud that it was built for, and its radius."""

    reference: Tensor
    radius: float


@dataclass(frozen=True)
class PointCloud:
    """N weighted particles after ``step`` recursions.

    The weights are stored as logarithms: over 10^6 recursions a weight may become smaller than any float.
    """

    theta: Tensor
    """Locations, N x p."""
    log_rho: Tensor
    """Logarithms of the weights, N."""
    step: int = 0
    screen: Screen | None = None
    """The neighbour list in use, if any: part of the state, because the last bits of sums depend on it."""
    epsilon: float | None = None
    """The regularisation in use, where it is relative to the cloud: part of the state, because it was measured at an
    earlier step."""

    @property
    def rho(self) -> Tensor:
        return self.log_rho.exp()

    def to(self, device: torch.device | str, dtype: torch.dtype) -> PointCloud:
        """Return the cloud on another device or in another precision, without its screen, which is rebuilt there."""
        if self.theta.device == torch.device(device) and self.theta.dtype == dtype:
            return self
        return replace(self, theta=self.theta.to(device, dtype), log_rho=self.log_rho.to(device, dtype), screen=None)


Intervals = Mapping[str, tuple[float, float]]
"""A box: the interval of the coordinates of each block of theta."""


def draw_cloud(
    coordinates: Mapping[str, int], intervals: Intervals, N: int, rho0: Rho0, generator: torch.Generator
) -> PointCloud:
    """Draw cloud_0 uniformly on a box, in float64, so that every precision starts from the same points.

    ``rho0="pdf"`` gives each particle the box's density, 1/volume (2.3e-8 for the paper's WDBC box: the total
    mass is then not 1); ``"uniform"`` gives it 1/N.
    """
    lengths = list(coordinates.values())
    low, high = (
        torch.cat([torch.full((n,), intervals[name][end]) for name, n in coordinates.items()]).double()
        for end in (0, 1)
    )
    theta = low + (high - low) * torch.rand(N, sum(lengths), generator=generator, dtype=torch.float64)
    log_weight = -float((high - low).log().sum()) if rho0 == "pdf" else -math.log(N)
    return PointCloud(theta, torch.full((N,), log_weight, dtype=torch.float64))


def draw_normal(
    coordinates: Mapping[str, int], n_x: int, scale: float, N: int, generator: torch.Generator
) -> PointCloud:
    """Draw cloud_0 for standardised features: a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / n_x), weights 1/N, in float64.

    Then <w, x> is of size s for any number of features: with a small s the neurons are nearly linear, with a large s
    nearly step functions.
    """
    sizes = {"a": 1.0, "b": scale, "w": scale / math.sqrt(n_x)}
    deviation = torch.cat([torch.full((n,), sizes[name], dtype=torch.float64) for name, n in coordinates.items()])
    theta = deviation * torch.randn(N, len(deviation), generator=generator, dtype=torch.float64)
    return PointCloud(theta, torch.full((N,), -math.log(N), dtype=torch.float64))
