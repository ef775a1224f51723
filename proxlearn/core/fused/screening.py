"""The cut-off distance beyond which particles exchange no mass, the skin of a neighbour list, and identity steps.

The skin is the margin of a list beyond the cut-off. In an identity step, no two particles are closer than the
cut-off.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.hyper import Hyper
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.step import Info

TOLERANCE = 2.0**-53
"""Relative change of a weight that is neglected. It is the same in every precision, because errors accumulate over 10^6
steps."""
LOG_TOLERANCE = math.log(TOLERANCE)


def oscillation(values: np.ndarray) -> float:
    return float(values.max()) - float(values.min())


@compile_pass()
def ranges(z, w, log_rho, inverse_beta):  # type: ignore[no-untyped-def]
    """Return osc(log z) and osc(w + log(rho) / beta), where osc is the maximum minus the minimum."""
    least = most = float(z[0])
    low = high = w[0] + log_rho[0] * inverse_beta
    for i in range(len(z)):
        least, most = min(least, z[i]), max(most, z[i])
        value = w[i] + log_rho[i] * inverse_beta
        low, high = min(low, value), max(high, value)
    return np.log(most / least), high - low


def cutoff(max_step: float, osc_log_rho: float, osc_log_z: float, N: int, epsilon: float) -> float:
    """Return the distance beyond which no pair changes a weight by more than 2^-53.

    Let r be this distance. In row i, the entries with C >= r^2, which are omitted, add up to at most
    (N - 1) exp(-(r^2 - C_ii) / 2 epsilon + osc(log z)) times the diagonal entry; in column j, they add up to at most
    this bound times exp(osc(log rho)). If no pair is closer than r, log z lies in every round between log z0 and
    (log xi - log rho) / kappa, its value at the fixed point; osc(log z) is therefore at most the larger of the
    oscillations of these two vectors.
    """
    exponent = osc_log_rho + osc_log_z + math.log(max(N - 1, 1)) - LOG_TOLERANCE
    return math.sqrt(max_step**2 + 2 * epsilon * exponent)


def skin(radius: float, max_step: float) -> float:
    """Return the margin of a list beyond the cut-off, which keeps the list valid for several steps.

    In m steps, two particles approach each other by about 2 sqrt(m) step lengths. A wider list costs more in every
    step, so the margin is a quarter of the radius, or zero if a quarter is not enough for one step.
    """
    is_enough = max_step > 0 and 0.25 * radius >= 2 * max_step
    return 0.25 * radius if is_enough else 0.0


class IdentityInfo(Info):
    """The diagnostics of an identity step.

    The potentials of such a step have a closed form and are computed on demand.
    """

    def __init__(self, previous: PointCloud, theta: Tensor, hyper: Hyper, w: np.ndarray) -> None:
        # The solution is computed on demand, so that a step in this regime does not compute it.
        for name, value in (("previous", previous), ("theta", theta), ("hyper", hyper), ("w", torch.from_numpy(w))):
            object.__setattr__(self, name, value)

    @property
    def stopped(self) -> bool:
        return True

    @property
    def finite(self) -> bool:
        # The largest displacement is finite, and the weights are unchanged.
        return True

    @property
    def solution(self) -> ProximalSolution:
        log_rho, hyper = self.previous.log_rho, self.hyper
        log_z = (-hyper.beta * self.w - 1 - log_rho) / hyper.kappa
        stay = (self.theta - self.previous.theta).square().sum(1) / (2 * hyper.epsilon)
        error = torch.tensor([TOLERANCE / 2], dtype=torch.float64)
        return ProximalSolution(log_rho, log_z, log_rho - log_z + stay, 0, error, hyper.delta, stopped=True)
