"""The interface of a flow whose distribution is known at every time, and common tools for the experiments.

The distribution p_t of the particles solves dp/dt = div(p grad phi_p) + (1/beta) Laplace(p), where phi_p is the first
variation of the functional F. The solution is known in closed form or computed by finite volumes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from proxlearn import flow as recursion
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional, Potentials
from proxlearn.core.hyper import Hyper


class KnownFlow(ABC):
    """A flow with a known solution."""

    name: str
    """Name in tables, which ends with the dimension if the flow exists in several dimensions."""
    p: int
    """Dimension of a particle."""
    beta: float
    horizon: float
    """End time of the flow."""
    functional: Functional
    moments: tuple[str, ...]
    """Names of the moments whose error has a leading term of order h: ``second`` and, for some flows, ``mean``."""

    @abstractmethod
    def draw(self, N: int, generator: torch.Generator) -> Tensor:
        """Draw N independent particles from the initial distribution, shape (N, p)."""

    @abstractmethod
    def log_density(self, theta: Tensor, time: float) -> Tensor:
        """Return log p_t at the locations ``theta``, shape (N,)."""

    @abstractmethod
    def free_energy(self, time: float) -> float:
        """Return F_beta(p_t) = F(p_t) + (1/beta) int p_t log p_t."""

    @abstractmethod
    def energy_distance(self, theta: Tensor, time: float) -> float:
        """Return the energy distance between the empirical distribution of the locations and p_t.

        It is 2 E|X - Y| - E|X - X'| - E|Y - Y'|, where X and X' are independent draws from the empirical distribution,
        and Y and Y' are independent draws from p_t.
        """


class BlindFunctional(Functional):
    """A functional whose gradient moves the particles, but whose potential w is 0 in the proximal step.

    The weights of such a flow depend on the locations of the particles, but not on the functional.
    """

    def __init__(self, functional: Functional) -> None:
        self.functional = functional

    @property
    def blocks(self) -> dict[str, int]:
        return dict(self.functional.blocks)

    @property
    def has_paper_readings(self) -> bool:
        return self.functional.has_paper_readings

    def value(self, theta: Tensor, rho: Tensor) -> Tensor:
        return self.functional.value(theta, rho)

    def potentials(self, theta: Tensor, rho: Tensor, hyper: Hyper) -> Potentials:
        potentials = self.functional.potentials(theta, rho, hyper)
        return Potentials(torch.zeros_like(potentials.w), potentials.gradient)


def generator(*seed: int) -> torch.Generator:
    """Return a random generator that is seeded with the given numbers."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1))


def moment_values(theta: Tensor) -> dict[str, float]:
    """Return the means of the coordinates and of their squares, over all particles and coordinates."""
    return {"mean": float(theta.mean()), "second": float(theta.square().mean())}


def clouds_at(
    functional: Functional, cloud: PointCloud, hyper: Hyper, times: Sequence[float], seed: int
) -> list[PointCloud]:
    """Return the clouds of the recursion at increasing times > 0; ``seed`` determines the noise."""
    steps = [round(time / hyper.h) for time in times]
    clouds = []
    for after, _ in recursion.iterate(functional, cloud, hyper, steps[-1], seed=seed):
        clouds += [after] * steps.count(after.step)
    return clouds
