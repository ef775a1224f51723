"""The weighted point cloud (theta, rho), and functions that draw initial clouds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proxlearn.core.options import Rho0
from proxlearn.core.samples import as_tensor
from proxlearn.errors import InputError
from proxlearn.printable_text import counted

__all__ = ["PointCloud", "Screen", "draw_cloud", "draw_normal"]


@dataclass(frozen=True)
class Screen:
    """The cloud for which a neighbour list was built, and the radius of the list."""

    reference: Tensor
    radius: float


@dataclass(frozen=True, eq=False)
class PointCloud:
    """A cloud of N weighted particles at step ``step`` of the recursion.

    The weights are stored as logarithms, because over 10^6 steps a weight may become smaller than the smallest positive
    float. A cloud is not changed in place; a step returns a new one. Two clouds compare equal only if they are the same
    object; compare their tensors with ``torch.equal``. ``PointCloud.from_arrays`` takes the weights and checks its
    arguments; the constructor takes the logarithms of the weights and checks nothing.

    Parameters
    ----------
    theta : Tensor, shape (N, p)
        Locations.
    log_rho : Tensor, shape (N,)
        Natural logarithms of the weights; they are stored in float64, whatever the precision of theta.
    step : int, default=0
        Number of steps so far.
    screen, epsilon : optional
        State of the recursion, set by ``iterate``.

    Examples
    --------
    >>> import proxlearn as pl
    >>> cloud = pl.PointCloud.from_arrays([[0.0, 1.0], [2.0, 3.0]], [0.25, 0.75])
    >>> cloud.theta.shape, cloud.rho.tolist(), cloud.step
    (torch.Size([2, 2]), [0.25, 0.75], 0)
    """

    theta: Tensor
    """Locations, shape (N, p)."""
    log_rho: Tensor
    """Logarithms of the weights, shape (N,). They are float64 even if theta is float32, because rounding to
    float32 would change the mass.
    """
    step: int = 0
    screen: Screen | None = None
    """The neighbour list in use, if any. It is part of the state, because the rounding of sums depends on it."""
    epsilon: float | None = None
    """The value of epsilon in use, if epsilon is relative to the cloud. It is part of the state, because it was
    measured at an earlier step."""

    def __post_init__(self) -> None:
        if self.log_rho.dtype != torch.float64:
            object.__setattr__(self, "log_rho", self.log_rho.double())

    @classmethod
    def from_arrays(cls, theta: Any, rho: Any = None) -> PointCloud:
        """Return the cloud at step 0 with the given locations and weights.

        Parameters
        ----------
        theta : array-like, shape (N, p)
            Locations. The steps are computed in their precision, float32 or float64; integers are converted to float64.
        rho : array-like, shape (N,), optional
            Weights > 0. They are not normalised: f_m = sum_i rho_i Phi(x_m, theta_i), so weights that sum to 2 double
            the output of a network. By default, each weight is 1/N.

        Returns
        -------
        PointCloud
        """
        locations = as_tensor("theta", theta)
        locations = locations if locations.dtype in (torch.float32, torch.float64) else locations.double()
        if locations.ndim != 2 or not locations.numel():
            problem = f"theta has the shape {tuple(locations.shape)}"
            raise InputError(problem, "give an N x p matrix, one row per particle")
        N = len(locations)
        weights = torch.full((N,), 1 / N, dtype=torch.float64) if rho is None else as_tensor("rho", rho).double()
        if weights.shape != (N,):
            problem = f"rho has the shape {tuple(weights.shape)}, but theta has {counted(N, 'row')}"
            raise InputError(problem, "give one weight per particle")
        if not bool(torch.isfinite(locations).all()):
            raise InputError("theta contains a number that is not finite", "replace NaN and infinity in theta")
        if not bool((torch.isfinite(weights) & (weights > 0)).all()):
            raise InputError("every weight in rho must be a finite number > 0", "correct or remove the other weights")
        return cls(locations.contiguous(), weights.log().to(locations.device))

    @property
    def rho(self) -> Tensor:
        """Weights of the particles, shape (N,), in the precision of theta."""
        return self.log_rho.exp().to(self.theta.dtype)

    @property
    def shares(self) -> Tensor:
        """Weights divided by their sum, shape (N,), in the precision of theta."""
        return torch.softmax(self.log_rho, dim=0).to(self.theta.dtype)

    def __repr__(self) -> str:
        N, p = self.theta.shape
        return f"PointCloud(N={N}, p={p}, step={self.step}, {str(self.theta.dtype).removeprefix('torch.')})"

    def to(self, device: torch.device | str, dtype: torch.dtype) -> PointCloud:
        """Return the cloud converted to another device or precision; a conversion discards the neighbour list.

        Parameters
        ----------
        device : torch.device or str
            Device of the tensors.
        dtype : torch.dtype
            Precision of theta; the weights are always in float64.

        Returns
        -------
        PointCloud
        """
        if self.theta.device == torch.device(device) and self.theta.dtype == dtype:
            return self
        return replace(self, theta=self.theta.to(device, dtype), log_rho=self.log_rho.to(device), screen=None)


Intervals = Mapping[str, tuple[float, float]]
"""A box: for each block of theta, the interval that contains all coordinates of the block."""


def draw_cloud(
    coordinates: Mapping[str, int], intervals: Intervals, N: int, rho0: Rho0, generator: torch.Generator
) -> PointCloud:
    """Draw an initial cloud uniformly from a box, in float64, so that all precisions have the same initial points.

    ``rho0="pdf"`` gives each particle the weight 1/volume, which is the density on the box (2.3e-8 for the paper's WDBC
    box, so the total mass is not 1); ``"uniform"`` gives each particle the weight 1/N.
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
    coordinates: Mapping[str, int], deviations: Mapping[str, float], N: int, generator: torch.Generator
) -> PointCloud:
    """Draw an initial cloud from a centred normal distribution with one standard deviation per block, in float64.

    Each weight is 1/N.
    """
    deviation = torch.cat([torch.full((n,), deviations[name], dtype=torch.float64) for name, n in coordinates.items()])
    theta = deviation * torch.randn(N, len(deviation), generator=generator, dtype=torch.float64)
    return PointCloud(theta, torch.full((N,), -math.log(N), dtype=torch.float64))
