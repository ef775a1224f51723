"""The hyperparameters of the recursion: numbers, readings of the paper and schedules, declared once with their checks.

A new hyperparameter is a field of ``Hyperparameters`` and its value in configs/recipe/*.yaml; the config schema, the
settings of a fit and the step follow from the field. The module avoids torch, so that a config is checked without
importing it; what depends on the cloud (a measured epsilon, the numbers of one step) is in core/schedules.py.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Generic, TypeVar

from proxlearn.core import options
from proxlearn.validators import Check, choice, integer, optional, real

Number = TypeVar("Number", float, float | None)
NOISE_SCALE: Check = real(at_least=0, example=1.0)


def hyperparameter(check: Check, default: Any = MISSING, *, selectable: bool = False) -> Any:
    """Return a field with its check; a ``selectable`` one may be None in a config, until selection fills it in."""
    return field(default=default, metadata={"check": check, "selectable": selectable})


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(Generic[Number]):
    """Every hyperparameter with the paper's reading as its default.

    ``Number`` is the type of beta, h and epsilon: ``float`` in ``Hyper``, and ``float | None`` in a config or in the
    settings of a fit, where None means that selection chooses the value.
    """

    beta: Number = hyperparameter(real(above=0, example=0.05), selectable=True)
    """Inverse temperature: the standard deviation of a step's noise is sqrt(2 h / beta)."""
    h: Number = hyperparameter(real(above=0, example=1e-3), selectable=True)
    """Step size."""
    epsilon: Number = hyperparameter(real(above=0, example=1.0), selectable=True)
    """Entropic regularisation of the proximal step."""
    epsilon_quantile: float | None = hyperparameter(optional(real(at_least=0, below=1, example=0.5)), None)
    """If given, epsilon is a multiple of this quantile of the particles' squared distances to their nearest
    neighbours; otherwise epsilon is absolute."""
    delta: float = hyperparameter(real(at_least=0, example=1e-3), 1e-3)
    """Tolerance of the proximal fixed point; 0 runs all L rounds."""
    L: int = hyperparameter(integer(at_least=1, example=300), 300)
    """Maximum number of rounds of the proximal fixed point."""
    drift: options.Drift = hyperparameter(choice(options.Drift), "paper")
    kernel: options.Kernel = hyperparameter(choice(options.Kernel), "auto")
    orientation: options.Orientation = hyperparameter(choice(options.Orientation), "paper")
    prox_potential: options.Potential = hyperparameter(choice(options.Potential), "paper")
    tolerance: options.Tolerance = hyperparameter(choice(options.Tolerance), "paper")
    weights: options.Weights = hyperparameter(choice(options.Weights), "proximal")
    resample: options.Resample = hyperparameter(choice(options.Resample), "none")
    ess_threshold: float = hyperparameter(real(above=0, example=0.5), 0.5)
    """Resample where the effective sample size is below this share of N."""
    h_schedule: options.Schedule = hyperparameter(choice(options.Schedule), "constant")
    beta_schedule: options.Schedule = hyperparameter(choice(options.Schedule), "constant")
    """Schedule of the temperature 1/beta, which falls as h does."""
    horizon: int = hyperparameter(integer(at_least=1, example=1000), 1000)
    """Step at which the cosine schedule ends and the power law has fallen to a tenth."""
    batch_size: int | None = hyperparameter(optional(integer(at_least=1, example=256)), None)
    """Samples per step, drawn with replacement; None: all samples."""


@dataclass(frozen=True, kw_only=True)
class Hyper(Hyperparameters[float]):
    """The hyperparameters of a step, complete: ``Hyper(beta=0.05, h=1e-3, epsilon=1.0)`` is the paper's reading."""

    noise_scale: float = hyperparameter(NOISE_SCALE, 1.0)
    """Factor of the noise; in a config it belongs to the dataset (1/100 for the paper's SHD)."""

    @property
    def kappa(self) -> float:
        return self.beta * self.epsilon / self.h

    @property
    def diffusion(self) -> float:
        """Standard deviation of one Euler-Maruyama increment."""
        return self.noise_scale * math.sqrt(2 * self.h / self.beta)

    @property
    def varies(self) -> bool:
        """Whether h, beta or epsilon changes from step to step."""
        return self.epsilon_quantile is not None or {self.h_schedule, self.beta_schedule} != {"constant"}

    def check(self) -> None:
        """Raise InputError for a value outside its range."""
        for entry in fields(self):
            entry.metadata["check"](entry.name, getattr(self, entry.name))
