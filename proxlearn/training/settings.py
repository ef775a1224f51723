"""The settings of a fit, except for data, neuron and seed, as values that can be stored in a file."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from proxlearn.core import options
from proxlearn.core.confinement import Confinement
from proxlearn.core.hyper import Hyper, Hyperparameters

DEFAULT_HORIZON = 1000
"""Horizon of the schedules if ``horizon`` is None; in that case, a constant h replaces the cosine schedule of h."""
MOST_WHOLE_ROWS = 2**15
"""Number of rows above which batch_size=auto draws mini-batches."""
AUTO_BATCH = 2**12
"""Number of rows of the mini-batches that batch_size=auto draws. With this number, a step takes milliseconds, and the
sampling noise of the gradient is small compared with the changes between steps."""


@dataclass(frozen=True, kw_only=True)
class Settings(Hyperparameters[float | None]):
    """The hyperparameters, the numbers of particles and steps, the initial scale and the precision of a fit.

    The defaults are those of recipe=tuned (a test compares them with its YAML file). If steps, init_scale, beta,
    h, epsilon, confinement or horizon is None, selection chooses its value.
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
    h_schedule: options.Schedule = "cosine"
    horizon: int | None = None
    batch_size: int | Literal["auto"] | None = "auto"
    noise_scale: float = 1.0
    N: int = 500
    steps: int | None = None
    init_scale: float | None = None
    """Scale s of the initial cloud: a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / n_x)."""
    dtype: str = "float32"
    confinement: Confinement | None = None
    """Lambda of (lambda / 2) |theta|^2, for all coordinates or per block of theta; selection may choose it."""

    def for_rows(self, rows: int) -> Settings:
        """Return the settings for ``rows`` training rows: a number, or None for all rows, replaces batch_size=auto."""
        if self.batch_size != "auto":
            return self
        return replace(self, batch_size=AUTO_BATCH if rows > MOST_WHOLE_ROWS else None)

    @property
    def hyper(self) -> Hyper:
        """The hyperparameters of the steps; beta, h and epsilon must have been set."""
        values = {field.name: getattr(self, field.name) for field in fields(Hyper)}
        # A fit has already replaced "auto" if it draws mini-batches; otherwise, all rows are used.
        values["batch_size"] = None if self.batch_size == "auto" else self.batch_size
        if self.horizon is None:
            # The number of steps cannot be the horizon, because continuing a fit increases it.
            values["horizon"] = DEFAULT_HORIZON
            values["h_schedule"] = "constant" if self.h_schedule == "cosine" else self.h_schedule
        missing = [name for name, value in values.items() if value is None and name in ("beta", "h", "epsilon")]
        assert not missing, f"the selection has not set {missing}"
        return Hyper(**values)
