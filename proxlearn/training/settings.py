"""All that a fit needs besides data, neuron and seed: plain values, which can be stored and passed on."""

from __future__ import annotations

from dataclasses import dataclass, fields

from proxlearn.core import options
from proxlearn.core.step import Hyper
from proxlearn.training.hyper_schedule import Plan

HYPER = tuple(field.name for field in fields(Hyper))


@dataclass(frozen=True)
class Settings:
    """The defaults are recipe=tuned's (a test holds them against its YAML file); None is for selection to fill in."""

    N: int = 500
    steps: int | None = None
    init_scale: float | None = None
    """s of cloud_0: a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / n_x)."""
    beta: float | None = None
    h: float | None = None
    epsilon: float | None = None
    epsilon_quantile: float | None = 0.5
    """epsilon is a multiple of this quantile of the squared distances to nearest neighbours; None: it is absolute."""
    delta: float = 1e-3
    L: int = 100
    noise_scale: float = 1.0
    drift: options.Drift = "first_variation"
    kernel: options.Kernel = "auto"
    orientation: options.Orientation = "consistent"
    prox_potential: options.Potential = "first_variation"
    tolerance: options.Tolerance = "log"
    weights: options.Weights = "proximal"
    resample: options.Resample = "none"
    ess_threshold: float = 0.5
    h_schedule: options.Schedule = "constant"
    beta_schedule: options.Schedule = "constant"
    horizon: int = 1000
    batch_size: int | None = None
    dtype: str = "float32"

    @property
    def plan(self) -> Plan:
        """What the steps are made with; every number must be known by now."""
        hyper = {name: getattr(self, name) for name in HYPER}
        missing = [name for name in ("beta", "h", "epsilon") if hyper[name] is None]
        assert not missing, f"selection has not filled in {missing}"
        return Plan(
            Hyper(**hyper),
            epsilon_quantile=self.epsilon_quantile,
            h_schedule=self.h_schedule,
            beta_schedule=self.beta_schedule,
            horizon=self.horizon,
            resample=self.resample,
            ess_threshold=self.ess_threshold,
            batch_size=self.batch_size,
        )
