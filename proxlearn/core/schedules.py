"""Schedules of a run, which depend only on the step and the cloud, so that a resumed run follows the same schedules."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.kernel import squared_distances
from proxlearn.core.options import Schedule

MEASURED_PER_DECADE = 10
"""Number of measurements of a relative epsilon per decade of steps; the cloud changes quickly at first and slowly
later.
"""
LOWEST = 0.01
"""Final factor of the cosine schedule; a factor of 0 would stop the particles."""
MOST_QUERIED = 128
"""Number of particles, taken from the start of the cloud, whose nearest neighbours are computed; all N would require
N^2 distances.
"""


def is_log_spaced(step: int, per_decade: int) -> bool:
    """Return whether ``step`` is 0 or 10^(j / per_decade), rounded, for some integer j."""
    return step == 0 or step in _decade(len(str(step)) - 1, per_decade)


@cache
def _decade(digits: int, per_decade: int) -> frozenset[int]:
    return frozenset(round(10 ** (digits + j / per_decade)) for j in range(per_decade))


def schedule_factor(kind: Schedule, step: int, horizon: int) -> float:
    """Return the factor that multiplies h, or the temperature 1/beta, at a step.

    The factor starts at 1. The cosine schedule reaches its final factor at ``horizon``; the power law has fallen to a
    tenth at that step and continues to fall.
    """
    if kind == "constant":
        return 1.0
    if kind == "power":
        return 1 / (1 + 9 * step / horizon)
    return LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * min(step / horizon, 1.0))) / 2


def with_measured_epsilon(hyper: Hyper, cloud: PointCloud) -> PointCloud:
    """Return the cloud with the epsilon of its next step; epsilon is measured again if a measurement is due."""
    if hyper.epsilon_quantile is None:
        return cloud
    if cloud.epsilon is None or is_log_spaced(cloud.step, MEASURED_PER_DECADE):
        length = neighbour_quantile(cloud.theta, hyper.epsilon_quantile)
        if length is not None:
            return replace(cloud, epsilon=hyper.epsilon * length)
        # If all particles coincide, every epsilon gives the same weights.
        return replace(cloud, epsilon=cloud.epsilon or hyper.epsilon)
    return cloud


def hyper_for_step(hyper: Hyper, cloud: PointCloud) -> Hyper:
    """Return the hyperparameters of the step that starts from ``cloud``, which must have the epsilon of that step."""
    if not hyper.varies:
        return hyper
    h = hyper.h * schedule_factor(hyper.h_schedule, cloud.step, hyper.horizon)
    beta = hyper.beta / schedule_factor(hyper.beta_schedule, cloud.step, hyper.horizon)
    # The cloud's epsilon replaces only a relative one, because an absolute epsilon must not be replaced by the
    # measurement of another run.
    measured = cloud.epsilon if hyper.epsilon_quantile is not None else None
    return replace(hyper, h=h, beta=beta, epsilon=measured or hyper.epsilon)


def hyper_of_last_step(hyper: Hyper, cloud: PointCloud) -> Hyper:
    """Return the hyperparameters of the step that produced ``cloud``; at step 0, return those of the first step."""
    return hyper_for_step(hyper, replace(cloud, step=max(cloud.step - 1, 0)))


def first_kappa(hyper: Hyper, cloud: PointCloud) -> float | None:
    """Return kappa of the proximal step that starts from ``cloud``, or None for other weight updates."""
    if hyper.weights != "proximal":
        return None
    return hyper_for_step(hyper, with_measured_epsilon(hyper, cloud)).kappa


def neighbour_quantile(theta: Tensor, q: float) -> float | None:
    """Return the q-quantile of the particles' squared distances to their nearest neighbours.

    The weights change noticeably if epsilon is near this quantile. Particles at the same position (after resampling) do
    not count as neighbours of each other; the result is None if all particles coincide.
    """
    distances = squared_distances(theta[:MOST_QUERIED], theta)
    nearest = torch.where(distances > 0, distances, torch.inf).amin(dim=1)
    nearest = nearest[nearest.isfinite()]
    return float(torch.quantile(nearest.double(), q)) if len(nearest) else None


LOGGED_PER_DECADE = 20
FILMED_PER_DECADE = 5


def is_logged(step: int, log_every: int | None) -> bool:
    """Return whether ``step`` is on the logging schedule; a run also logs its last step."""
    return is_log_spaced(step, LOGGED_PER_DECADE) if log_every is None else step % log_every == 0


def is_film(step: int) -> bool:
    """Return whether ``step`` is one of the log-spaced steps whose checkpoints are kept for films."""
    return is_log_spaced(step, FILMED_PER_DECADE)


def is_stored(step: int, checkpoint_every: int, films: bool) -> bool:
    """Return whether a checkpoint is written at ``step``; a run also stores its last step."""
    return (films and is_film(step)) or step % checkpoint_every == 0
