"""The settings of a fit besides data, neuron and seed, as plain values that can be stored."""

from __future__ import annotations

from dataclasses import dataclass, fields

from proxlearn.core import options
from proxlearn.core.hyper import Hyper, Hyperparameters


@dataclass(frozen=True, kw_only=True)
class Settings(Hyperparameters[float | None]):
    """The hyperparameters, the numbers of particles and steps, the initial scale and the precision of a fit.

    The defaults are those of recipe=tuned (a test compares them with its YAML file). If steps, init_scale, beta,
    h or epsilon is None, selection chooses its value.
    """

    beta: float | None = None
    h: float | None = None
    epsilon: float | None = None
    epsilon_quantile: float | None = 0.5
    L: int = 100
    drift: options.Drift = "first_variation"
    orientation: options.Orientation = "consistent"
    prox_potential: options.Potential = "first_variation"
    tolerance: options.Tolerance = "log"
    noise_scale: float = 1.0
    N: int = 500
    steps: int | None = None
    init_scale: float | None = None
    """Scale s of the initial cloud: a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / n_x)."""
    dtype: str = "float32"

    @property
    def hyper(self) -> Hyper:
        """The hyperparameters of the steps; beta, h and epsilon must be filled in."""
        values = {field.name: getattr(self, field.name) for field in fields(Hyper)}
        missing = [name for name, value in values.items() if value is None and name in ("beta", "h", "epsilon")]
        assert not missing, f"the selection has not set {missing}"
        return Hyper(**values)
