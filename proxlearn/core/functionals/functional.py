"""The protocol of a functional F(rho), with default methods based on automatic differentiation.

At the current cloud, a step needs two things from F for each particle: a potential w_i, which updates the weight, and a
gradient, which moves the particle. With the *first variation* phi_rho of F they are w_i = phi_rho(theta_i) and
grad phi_rho(theta_i). Both follow from the value alone: dF/drho_i = phi_rho(theta_i), and
dF/dtheta_i = rho_i grad phi_rho(theta_i).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.hyper import DefaultReading, Hyper, Hyperparameters
from proxlearn.errors import InputError, RunError
from proxlearn.printable_text import counted

__all__ = ["Functional", "Potentials"]


@dataclass(frozen=True)
class Potentials:
    """The potential and the gradient of a functional for each particle of the current cloud."""

    w: Tensor
    """Linear part of the proximal objective per unit of mass, shape (N,), before multiplication by h. Additive
    constants have no effect."""
    gradient: Tensor
    """Gradient that moves the particles, shape (N, p)."""


class Functional(ABC):
    """A functional F(rho) of a weighted cloud, to be minimised.

    Subclasses define ``value`` and ``blocks``. By default, ``potentials`` differentiates the value automatically; Risk
    and Energy override it with closed forms. The recursion minimises F plus the negative entropy divided by beta,
    equation :eq:`free-energy` in :doc:`/theory/mean_field`.

    Examples
    --------
    The variance of a cloud, which neither a Risk nor an Energy with only V can express:

    >>> import torch, proxlearn as pl
    >>> class Variance(pl.Functional):
    ...     blocks = {"theta": 2}
    ...     def value(self, theta, rho):
    ...         mean = rho @ theta
    ...         return rho @ (theta - mean).square().sum(1)
    >>> cloud = pl.init(Variance(), N=30, seed=0)
    >>> hyper = pl.Hyper(beta=1e6, h=0.1, epsilon=0.1)
    >>> *_, (last, info) = pl.iterate(Variance(), cloud, hyper, steps=20)
    >>> bool(Variance().value(last.theta, last.rho) < Variance().value(cloud.theta, cloud.rho))
    True
    """

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the functional's data and of its initial clouds; float64 if it has no data."""
        return torch.float64

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, int]:
        """Names and lengths of the blocks of theta, in order."""

    @abstractmethod
    def value(self, theta: Tensor, rho: Tensor) -> Tensor:
        """Return the value F(rho) of the functional at a cloud.

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Locations of the particles.
        rho : Tensor, shape (N,)
            Weights of the particles.

        Returns
        -------
        Tensor, a scalar
        """

    def first_variation(self, theta: Tensor, rho: Tensor) -> Tensor:
        """Return the first variation phi_rho(theta_i) for every particle, shape (N,).

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Locations of the particles.
        rho : Tensor, shape (N,)
            Weights of the particles.

        Returns
        -------
        Tensor, shape (N,)
            The value of the first variation of F at rho, at each particle.
        """
        rho = rho.detach().requires_grad_()
        with torch.enable_grad():
            return self._differentiate(theta, rho, rho, "rho")

    def potentials(self, theta: Tensor, rho: Tensor, hyper: Hyper) -> Potentials:
        """Return the potential w and the gradient for each particle, as ``drift`` and ``prox_potential`` define them.

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Locations of the particles.
        rho : Tensor, shape (N,)
            Weights of the particles.
        hyper : Hyper
            Hyperparameters; only the options ``drift`` and ``prox_potential`` are used.

        Returns
        -------
        Potentials
            ``w``, shape (N,), the linear part of the proximal objective, and ``gradient``, shape (N, p), which moves
            the particles.
        """
        self.check_readings(hyper)
        theta = theta.detach().requires_grad_()
        with torch.enable_grad():
            slope = self._differentiate(theta, rho, theta, "theta")
        # A particle without mass has no effect on F, and its gradient would be 0 / 0.
        mass = torch.where(rho > 0, rho, torch.ones_like(rho))
        gradient = require_finite(slope / mass[:, None])
        return Potentials(self.first_variation(theta.detach(), rho), gradient)

    def _differentiate(self, theta: Tensor, rho: Tensor, variable: Tensor, name: str) -> Tensor:
        """Return the derivative of the value with respect to ``variable``, which is theta or rho."""
        value, cls = self.value(theta, rho), type(self).__name__
        if not isinstance(value, Tensor) or value.numel() != 1:
            returned = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.100}"
            raise InputError(
                f"the method `value` of {cls} returned {returned}", "return a scalar tensor, for example with .sum()"
            )
        (slope,) = torch.autograd.grad(value, variable, allow_unused=True) if value.requires_grad else (None,)
        if slope is None:
            problem = f"the method `value` of {cls} does not depend on {name} through torch operations"
            raise InputError(problem, "compute the value from theta and rho, for example as rho @ V(theta)")
        return slope

    def initial_deviations(self, scale: float) -> Mapping[str, float]:
        """Return the standard deviation of each block of theta in a normal initial cloud, by default ``scale``.

        Parameters
        ----------
        scale : float
            Scale of the initial cloud, ``init_scale``.

        Returns
        -------
        mapping of str to float
            One standard deviation per block of theta.
        """
        return dict.fromkeys(self.blocks, scale)

    @property
    def has_paper_readings(self) -> bool:
        """Whether ``drift="paper"`` and ``prox_potential="paper"`` are defined for this functional."""
        return False

    def check_readings(self, hyper: Hyperparameters[Any]) -> None:
        """Raise InputError if an option is "paper" but "paper" is not defined for this functional.

        Parameters
        ----------
        hyper : Hyper
            Hyperparameters of a step, or the settings of a fit.
        """
        for option in () if self.has_paper_readings else ("drift", "prox_potential"):
            if getattr(hyper, option) == "paper":
                problem = f"{option}=paper is defined for the quadratic loss and for Energy only"
                raise InputError(problem, f"use {option}=first_variation")

    def with_readings(self, hyper: Hyper) -> Hyper:
        """Return ``hyper`` with defaults of ``drift`` and ``prox_potential`` that are valid for this functional.

        If "paper" is not defined for this functional, a default "paper" becomes "first_variation", and a "paper" that
        the user set raises InputError.

        Parameters
        ----------
        hyper : Hyper
            Hyperparameters as the user gave them.

        Returns
        -------
        Hyper
            Hyperparameters whose options are defined for this functional.
        """
        if self.has_paper_readings:
            return hyper
        options = ("drift", "prox_potential")
        left_open = [option for option in options if isinstance(getattr(hyper, option), DefaultReading)]
        if left_open:
            hyper = replace(hyper, **dict.fromkeys(left_open, "first_variation"))  # type: ignore[arg-type]
        self.check_readings(hyper)
        return hyper

    def check_cloud(self, cloud: PointCloud) -> None:
        """Raise InputError if the number of coordinates of the cloud's particles does not match this functional.

        Parameters
        ----------
        cloud : PointCloud
            A cloud of N particles with p coordinates.
        """
        self.check_locations(cloud.theta)

    def check_locations(self, theta: Tensor) -> None:
        """Raise InputError unless theta has the shape (N, p).

        Parameters
        ----------
        theta : Tensor
            Locations of the particles.
        """
        p = sum(self.blocks.values())
        if theta.ndim != 2 or theta.shape[1] != p:
            blocks = ", ".join(f"{name}: {length}" for name, length in self.blocks.items())
            coordinates = f"{counted(p, 'coordinate')} ({blocks})"
            problem = f"theta has the shape {tuple(theta.shape)}, but a particle has {coordinates}"
            raise InputError(problem, f"give an N x {p} matrix of locations, or draw them with proxlearn.init")

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        """Return the functional with its data converted to a device and a precision.

        Parameters
        ----------
        device : torch.device or str
            Device of the data.
        dtype : torch.dtype
            Precision of the data, float32 or float64.

        Returns
        -------
        Functional
            A functional of the same class.
        """
        return self


class NonFiniteGradient(RunError):
    """Raised if the gradient of a user's function is not finite; ``iterate`` adds the step number to the message."""


def require_finite(gradient: Tensor) -> Tensor:
    """Return the gradient (N x p) of a user's function; raise NonFiniteGradient if it is not finite."""
    finite = torch.isfinite(gradient)
    if not bool(finite.all()):
        bad = int((~finite).any(dim=1).nonzero()[0])
        problem = f"the gradient of the functional is not finite at particle {bad}"
        raise NonFiniteGradient(problem, "make the functional differentiable there, or choose a smaller h")
    return gradient


def check_arguments(functional: Functional, theta: Any, rho: Any) -> None:
    """Raise InputError unless theta and rho are tensors of shapes (N, p) and (N,) in the same precision."""
    for name, value in (("theta", theta), ("rho", rho)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            what = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"
            remedy = "give cloud.theta and cloud.rho; PointCloud.from_arrays creates a cloud from arrays"
            raise InputError(f"{name} is {what}, not a tensor of real numbers", remedy)
    functional.check_locations(theta)
    if rho.shape != theta.shape[:1] or rho.dtype != theta.dtype:
        problem = (
            f"rho has the shape {tuple(rho.shape)} in {rho.dtype}, but theta has the shape {tuple(theta.shape)} in "
            f"{theta.dtype}"
        )
        raise InputError(problem, "give one weight per particle, in the precision of theta")
