"""A run's hyperparameters as they change from step to step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxlearn.core import options
from proxlearn.core.cloud import PointCloud
from proxlearn.core.schedules import MEASURED_PER_DECADE, is_log_spaced, neighbour_quantile, schedule_factor
from proxlearn.core.step import Hyper


@dataclass(frozen=True)
class Plan:
    """What the steps are made with. The default is the paper's: the same numbers at every step."""

    hyper: Hyper
    """At step 0."""
    epsilon_quantile: float | None = None
    """If given, hyper.epsilon is a multiple of this quantile of the squared distances to nearest neighbours."""
    h_schedule: options.Schedule = "constant"
    beta_schedule: options.Schedule = "constant"
    """Of the temperature 1/beta, which falls as h does."""
    horizon: int = 1
    """The step that the schedules are made for."""
    resample: options.Resample = "none"
    ess_threshold: float = 0.5
    """Resample where the effective sample size is below this share of N."""
    batch_size: int | None = None
    """Samples a step; None: all."""

    @property
    def changes(self) -> bool:
        return self.epsilon_quantile is not None or {self.h_schedule, self.beta_schedule} != {"constant"}

    def with_measured_epsilon(self, cloud: PointCloud) -> PointCloud:
        """The cloud with the epsilon that its next step is made with, measured anew where that is due."""
        if self.epsilon_quantile is None:
            return cloud
        if cloud.epsilon is None or is_log_spaced(cloud.step, MEASURED_PER_DECADE):
            length = neighbour_quantile(cloud.theta, self.epsilon_quantile)
            if length is not None:
                return replace(cloud, epsilon=self.hyper.epsilon * length)
            # All particles are twins: any epsilon gives the same weights.
            return replace(cloud, epsilon=cloud.epsilon or self.hyper.epsilon)
        return cloud

    def hyper_at(self, cloud: PointCloud) -> Hyper:
        """The numbers of the step that leads on from a (measured) cloud."""
        if not self.changes:
            return self.hyper
        h = self.hyper.h * schedule_factor(self.h_schedule, cloud.step, self.horizon)
        beta = self.hyper.beta / schedule_factor(self.beta_schedule, cloud.step, self.horizon)
        # Only a relative epsilon is the cloud's: an absolute one is not to be replaced by what another run measured.
        measured = cloud.epsilon if self.epsilon_quantile is not None else None
        return replace(self.hyper, h=h, beta=beta, epsilon=measured or self.hyper.epsilon)

    def hyper_before(self, cloud: PointCloud) -> Hyper:
        """The numbers of the step that led to ``cloud``; of the first step, where none has been made."""
        return self.hyper_at(replace(cloud, step=max(cloud.step - 1, 0)))
