"""Finite volumes in one dimension for dp/dt = d/dx (p dphi/dx + (1/beta) dp/dx), with no flux at both ends.

The flux between two cells is the Scharfetter-Gummel flux (Chang-Cooper in plasma physics): it is exact for a constant
flux and a linear phi, so that the discrete equilibrium is exactly exp(-beta phi). Time steps are implicit in p with phi
at the old time. The matrix of a step is an M-matrix whose columns sum to 1: mass is conserved, and a positive density
remains positive for every step size. The order is 2 in the cell width and 1 in the time step.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.linalg import solve_banded
from scipy.special import ndtr
from torch import Tensor

from proxlearn.core.functionals.functional import Functional
from proxlearn.verify.known_flow import KnownFlow

LARGEST_EXPONENT = 700.0
"""Upper limit of exponents, so that exp does not overflow in float64."""

Potential = Callable[[np.ndarray], np.ndarray]
"""Function that maps the masses of the cells to the first variation at the cell centres."""


@dataclass(frozen=True)
class UniformGrid:
    """Cells of equal width on an interval."""

    low: float
    high: float
    cells: int

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.cells

    @property
    def edges(self) -> np.ndarray:
        return np.linspace(self.low, self.high, self.cells + 1)

    @property
    def centres(self) -> np.ndarray:
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2)


def bernoulli(x: np.ndarray) -> np.ndarray:
    """Return x / (exp(x) - 1), which is 1 - x/2 near 0 and 0 where exp(x) overflows."""
    small = np.abs(x) < 1e-6
    safe = np.clip(np.where(small, 1.0, x), None, LARGEST_EXPONENT)
    return np.where(small, 1 - x / 2, safe / np.expm1(safe))


def implicit_step(masses: np.ndarray, phi: np.ndarray, beta: float, width: float, dt: float) -> np.ndarray:
    """Return the masses of the cells after a time step ``dt``, where ``phi`` is the potential at the cell centres."""
    rise = beta * np.diff(phi)
    rate = dt / (beta * width**2)
    # Rates at which mass moves from a cell to its right neighbour, and from that neighbour back.
    right, left = rate * bernoulli(rise), rate * bernoulli(-rise)
    bands = np.ones((3, len(masses)))
    bands[0, 1:], bands[2, :-1] = -left, -right
    bands[1, :-1] += right
    bands[1, 1:] += left
    return np.asarray(solve_banded((1, 1), bands, masses))


def solve(
    potential: Potential, masses: np.ndarray, grid: UniformGrid, beta: float, duration: float, steps: int
) -> np.ndarray:
    """Return the masses of the cells at the start and after every step, shape (steps + 1, cells)."""
    history = np.empty((steps + 1, len(masses)))
    history[0] = masses
    for k in range(steps):
        phi = potential(history[k])
        history[k + 1] = implicit_step(history[k], phi, beta, grid.width, duration / steps)
    return history


class GridFlow(KnownFlow):
    """A one-dimensional flow from a mixture of normal distributions, solved by finite volumes."""

    p = 1
    low: float
    high: float
    cells = 800
    steps = 4000
    """Number of time steps up to the horizon."""
    components: tuple[tuple[float, float, float], ...]
    """Weight, mean and standard deviation of each component of the initial mixture."""
    moments: tuple[str, ...] = ("second",)
    functional: Functional

    @abstractmethod
    def potential(self, x: np.ndarray) -> Potential:
        """Return the function that maps the masses of the cells to the first variation at their centres ``x``."""

    def initial_masses(self, grid: UniformGrid) -> np.ndarray:
        """Return the initial masses of the cells, computed as differences of the distribution function."""
        return sum((w * np.diff(ndtr((grid.edges - m) / s)) for w, m, s in self.components), np.zeros(grid.cells))

    def draw(self, N: int, generator: torch.Generator) -> Tensor:
        weights, means, deviations = torch.tensor(self.components, dtype=torch.float64).unbind(1)
        chosen = torch.multinomial(weights, N, replacement=True, generator=generator)
        numbers = torch.randn(N, generator=generator, dtype=torch.float64)
        return (means[chosen] + deviations[chosen] * numbers)[:, None]

    @cached_property
    def grid(self) -> UniformGrid:
        return UniformGrid(self.low, self.high, self.cells)

    @cached_property
    def history(self) -> np.ndarray:
        potential = self.potential(self.grid.centres)
        return solve(potential, self.initial_masses(self.grid), self.grid, self.beta, self.horizon, self.steps)

    def masses(self, time: float) -> np.ndarray:
        """Return the masses of the cells at the time step that is nearest to ``time``."""
        return np.asarray(self.history[round(time / self.horizon * self.steps)])

    def log_density(self, theta: Tensor, time: float) -> Tensor:
        # The logarithm is interpolated, because it is nearly quadratic where the density spans orders of magnitude.
        logs = np.log(np.maximum(self.masses(time) / self.grid.width, np.finfo(float).tiny))
        return torch.from_numpy(np.interp(theta[:, 0].numpy(), self.grid.centres, logs))

    def free_energy(self, time: float) -> float:
        masses = self.masses(time)
        energy = self.functional.value(torch.from_numpy(self.grid.centres)[:, None], torch.from_numpy(masses))
        held = masses[masses > 0]
        return float(energy) + float(np.sum(held * np.log(held / self.grid.width))) / self.beta

    def second_moment(self, time: float) -> float:
        return float(self.masses(time) @ (self.grid.centres**2 + self.grid.width**2 / 12))

    def quantiles(self, levels: np.ndarray, time: float) -> np.ndarray:
        """Return the quantiles of the solution at ``time`` for the given levels in (0, 1)."""
        distribution = np.concatenate(([0.0], np.cumsum(self.masses(time))))
        return np.asarray(np.interp(levels, distribution / distribution[-1], self.grid.edges))

    def energy_distance(self, theta: Tensor, time: float) -> float:
        # In one dimension, the energy distance is 2 int (F_N - F)^2; the integral is evaluated at the edges of the
        # cells.
        distribution = np.concatenate(([0.0], np.cumsum(self.masses(time))))
        empirical = np.searchsorted(np.sort(theta[:, 0].numpy()), self.grid.edges, side="right") / len(theta)
        return float(2 * np.trapezoid((empirical - distribution) ** 2, self.grid.edges))


def spatial_errors(flow: GridFlow, cells: tuple[int, ...], steps: int) -> list[float]:
    """Return the L1 distance between the final solutions with n and 2n cells, for every n in ``cells``.

    ``steps`` is the number of time steps on the first grid. The number of time steps grows with the square of the
    number of cells, so that the errors in time and space decrease together.
    """
    distances = []
    for n in cells:
        coarse, fine = (_final_masses(flow, n * factor, steps * (n * factor // cells[0]) ** 2) for factor in (1, 2))
        distances.append(float(np.abs(coarse - fine.reshape(n, 2).sum(1)).sum()))
    return distances


def temporal_errors(flow: GridFlow, cells: int, steps: tuple[int, ...]) -> list[float]:
    """Return the L1 distance between the final solutions with m and 2m time steps, for every m in ``steps``."""
    return [float(np.abs(_final_masses(flow, cells, m) - _final_masses(flow, cells, 2 * m)).sum()) for m in steps]


def _final_masses(flow: GridFlow, cells: int, steps: int) -> np.ndarray:
    grid = UniformGrid(flow.low, flow.high, cells)
    masses, potential = flow.initial_masses(grid), flow.potential(grid.centres)
    for _ in range(steps):
        masses = implicit_step(masses, potential(masses), flow.beta, grid.width, flow.horizon / steps)
    return masses


def local_orders(errors: list[float]) -> list[float]:
    """Return log2 of the ratios of consecutive errors, for resolutions that double from one error to the next."""
    return [math.log2(first / second) for first, second in itertools.pairwise(errors)]
