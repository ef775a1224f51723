"""Cut-off distances beyond which particles exchange no mass, and the margin (skin) of a neighbour list."""

from __future__ import annotations

import math

import numpy as np

from proxlearn.core.fused.code_cache import compile_pass

TOLERANCE = 2.0**-53
"""Relative change of a weight that is neglected. It is the same in every precision, because errors accumulate over 10^6
steps."""
LOG_TOLERANCE = math.log(TOLERANCE)


def oscillation(values: np.ndarray) -> float:
    return float(values.max()) - float(values.min())


@compile_pass()
def ranges(z, w, log_rho, inverse_beta):  # type: ignore[no-untyped-def]
    """Return osc(log z) and osc(w + log(rho) / beta), computed in one pass."""
    least = most = float(z[0])
    low = high = w[0] + log_rho[0] * inverse_beta
    for i in range(len(z)):
        least, most = min(least, z[i]), max(most, z[i])
        value = w[i] + log_rho[i] * inverse_beta
        low, high = min(low, value), max(high, value)
    return np.log(most / least), high - low


def cutoff(max_step: float, osc_log_rho: float, osc_log_z: float, N: int, epsilon: float) -> float:
    """Return the distance beyond which no pair changes a weight by more than 2^-53.

    In row i, the entries dropped at C >= r^2 amount to at most (N - 1) exp(-(r^2 - C_ii) / 2 epsilon + osc(log z))
    times the diagonal entry; in column j, to that bound times exp(osc(log rho)). Without near pairs, log z stays in
    every round between log z0 and its value at the fixed point, (log xi - log rho) / kappa, so its oscillation is at
    most the larger of the two.
    """
    exponent = osc_log_rho + osc_log_z + math.log(max(N - 1, 1)) - LOG_TOLERANCE
    return math.sqrt(max_step**2 + 2 * epsilon * exponent)


def skin(radius: float, max_step: float) -> float:
    """Return the margin of a list beyond the cut-off, which keeps the list valid for several steps.

    In m steps, two particles approach each other by about 2 sqrt(m) step lengths. A wider list costs more in every
    step, so the margin is a quarter of the radius, or zero if that is not enough for one step.
    """
    is_enough = max_step > 0 and 0.25 * radius >= 2 * max_step
    return 0.25 * radius if is_enough else 0.0
