"""The fixed point of Algorithm 1 with an absorbed kernel; rounds, returned pair and error are as in proximal.solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proxlearn.core.fused.absorbed_kernel import AbsorbedKernel
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.options import Tolerance

SHIFT_LIMIT = {np.dtype(np.float32): 30.0, np.dtype(np.float64): 300.0}
"""Distance that log z may move from the shift before K is rebuilt."""
SMALLEST = {np.dtype(np.float32): 1e-28, np.dtype(np.float64): 1e-280}
"""Value below which an entry of u or v may have lost terms to underflow, so that the log domain must be used."""
OF_ALL_Q = {np.dtype(np.float32): 1e-30, np.dtype(np.float64): 1e-290}
"""The same limit for v, as a share of the sum of q^: the weight of an entry of K that underflowed is its q^, which is
large where z has moved far from the shift. The smallest entry of K over the rounding unit is a fifth of this."""


@dataclass(frozen=True)
class FixedPoint:
    """The pair returned by Algorithm 1, as logarithms in float64."""

    log_rho: np.ndarray
    log_z: np.ndarray
    log_q: np.ndarray
    log_Gz: np.ndarray
    """log(Gamma z)."""
    log_Gq: np.ndarray
    """log(Gamma^T q)."""
    changes: list[float]
    stopped: bool

    def log_eta(self, cutoff: float, epsilon: float) -> float:
        """Return the logarithm of a bound on the change of log rho caused by the entries that were dropped.

        Each dropped entry is at most exp(-cutoff^2 / 2 epsilon).
        """
        rows = _logsumexp(self.log_z) - self.log_Gz.min()
        columns = _logsumexp(self.log_q) - self.log_Gq.min()
        return float(max(rows, columns) - cutoff**2 / (2 * epsilon))


@compile_pass()
def _next_z(u, q, v, share, gamma, unit, log_xi, kappa, log_z, log_Gq, next_z):  # type: ignore[no-untyped-def]
    """Compute log(Gamma^T q) and the next log z.

    Return the largest change of log z, the largest distance of log z from the shift, and the smallest entry of u and v.
    The entries of v are divided by ``share`` times the sum of q if that is more than 1.
    """
    change = reach = 0.0
    least = np.inf
    of_q = 1 / max(1.0, share * q.astype(np.float64).sum())
    for j in range(len(log_z)):
        total = 0.0
        for t in range(len(v)):
            total += v[t, j]
        least = min(least, of_q * total, u[j])
        log_Gq[j] = np.log(total) + unit - gamma[j]
        next_z[j] = (log_xi[j] - log_Gq[j]) / (1 + kappa)
        change = max(change, abs(next_z[j] - log_z[j]))
        reach = max(reach, abs(next_z[j] - gamma[j]))
    return change, reach, least


@compile_pass()
def _unscaled(q, scale):  # type: ignore[no-untyped-def]
    """Return q from q^; q may overflow even if the weights are in range."""
    return q * scale


@compile_pass()
def _distance(x, y):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(x)):
        total += (x[i] - y[i]) ** 2
    return np.sqrt(total)


def solve(
    kernel: AbsorbedKernel,
    log_xi: np.ndarray,
    kappa: float,
    log_z0: np.ndarray,
    delta: float,
    L: int,
    tolerance: Tolerance,
) -> FixedPoint | None:
    """Run the rounds as in proximal.solve; return None if the plain numbers leave their range."""
    reach, smallest, unit = SHIFT_LIMIT[kernel.dtype], SMALLEST[kernel.dtype], kernel.unit
    share = OF_ALL_Q[kernel.dtype] / smallest
    changes: list[float] = []
    stopped = False

    def compute_next(log_z: np.ndarray, log_Gq: np.ndarray, next_z: np.ndarray) -> Any:
        return _next_z(kernel.u, kernel.q, kernel.v, share, kernel.gamma, unit, log_xi, kappa, log_z, log_Gq, next_z)

    log_z = log_z0
    kernel.rebuild(log_z)
    kernel.sweep(log_z)
    q = _unscaled(kernel.q, kernel.q_scale)
    log_Gq, next_Gq, next_z = np.empty_like(log_z), np.empty_like(log_z), np.empty_like(log_z)
    moved, away, least = compute_next(log_z, log_Gq, next_z)
    # log(Gamma z) and log q of the pair (log_z, q), taken before the kernel sweeps the next one.
    pair = kernel.logarithms()
    for _ in range(L):
        if not least > smallest:
            return None
        changes.append(moved)
        if tolerance == "log" and 2 * moved <= delta:
            stopped = True
            break
        if away > reach:
            kernel.rebuild(next_z)
        kernel.sweep(next_z)
        following = np.empty_like(next_z)
        result = compute_next(next_z, next_Gq, following)
        if tolerance == "paper":
            next_q = _unscaled(kernel.q, kernel.q_scale)
            if _distance(next_q, q) < delta and _distance(np.exp(next_z), np.exp(log_z)) < delta:
                stopped = True
                break
            q = next_q
        log_z, next_z, (moved, away, least) = next_z, following, result
        log_Gq, next_Gq = next_Gq, log_Gq
        pair = kernel.logarithms()
    else:
        # The pair of the last round has not been checked yet.
        if not least > smallest:
            return None
    log_q, log_Gz = pair()
    return FixedPoint(log_z + log_Gq, log_z, log_q, log_Gz, log_Gq, changes, stopped)


def _logsumexp(x: np.ndarray) -> float:
    top = x.max()
    return float(top + np.log(np.exp(x - top).sum()))
