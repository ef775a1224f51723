"""What changes along a run besides the cloud: functions of the step and the cloud alone, so that a resume is exact."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from proxlearn.core.kernel import squared_distances
from proxlearn.core.options import Schedule

MEASURED_PER_DECADE = 10
"""How often a relative epsilon is measured again: the cloud changes fast at first, and slowly later."""
LOWEST = 0.01
"""Where the cosine ends: a factor of 0 would be a step of nothing."""
MOST_QUERIED = 128
"""Particles whose nearest neighbour is looked for: the first so many stand for all, at a fraction of N^2 distances."""


def is_log_spaced(step: int, per_decade: int) -> bool:
    """Whether ``step`` is 0 or the rounded power 10^(j / per_decade) of some j."""
    return step == 0 or step in _decade(len(str(step)) - 1, per_decade)


@cache
def _decade(digits: int, per_decade: int) -> frozenset[int]:
    return frozenset(round(10 ** (digits + j / per_decade)) for j in range(per_decade))


def schedule_factor(kind: Schedule, step: int, horizon: int) -> float:
    """The factor of h, or of the temperature 1/beta, at a step: 1 at first; the cosine ends at ``horizon``, the power
    law is at a tenth there and goes on."""
    if kind == "constant":
        return 1.0
    if kind == "power":
        return 1 / (1 + 9 * step / horizon)
    return LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * min(step / horizon, 1.0))) / 2


def neighbour_quantile(theta: Tensor, q: float) -> float | None:
    """The q-quantile of the particles' squared distances to their nearest neighbours: the length that epsilon has to
    compare with for the weights to live. Twins (of a resampling) are no neighbours; None where all are twins."""
    asked = theta[:MOST_QUERIED]
    distances = squared_distances(asked, theta)
    nearest = torch.where(distances > 0, distances, torch.inf).amin(dim=1)
    nearest = nearest[nearest.isfinite()]
    return float(torch.quantile(nearest.double(), q)) if len(nearest) else None
