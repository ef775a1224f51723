"""The fixed point of Algorithm 1 over a stabilised kernel: proximal.solve's rounds, with its returned pair and its
error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proxlearn.core.fused.stabilised import StabilisedKernel
from proxlearn.core.options import Tolerance

REACH = {np.dtype(np.float32): 30.0, np.dtype(np.float64): 300.0}
"""How far log z may move from the shift before K is rebuilt."""
SMALLEST = {np.dtype(np.float32): 1e-28, np.dtype(np.float64): 1e-280}
"""Below this an entry of u or v may have lost what underflowed: the log domain must take over."""


@dataclass(frozen=True)
class FixedPoint:
    """The pair that Algorithm 1 returns, as logarithms in float64."""

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
        """Log of the bound eta: with all dropped entries at most exp(-cutoff^2 / 2 epsilon), |change of log rho| <=
        eta."""
        rows = _logsumexp(self.log_z) - self.log_Gz.min()
        columns = _logsumexp(self.log_q) - self.log_Gq.min()
        return float(max(rows, columns) - cutoff**2 / (2 * epsilon))


def solve(
    kernel: StabilisedKernel,
    log_rho: np.ndarray,
    log_xi: np.ndarray,
    kappa: float,
    log_z0: np.ndarray,
    delta: float,
    L: int,
    tolerance: Tolerance,
) -> FixedPoint | None:
    """Rounds as in proximal.solve; None where the plain numbers leave their range."""
    reach, smallest = REACH[kernel.dtype], SMALLEST[kernel.dtype]
    unit = float(log_rho.max())
    rho = np.exp(log_rho - unit).astype(kernel.dtype)
    changes: list[float] = []

    def pair(log_z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """log z, log q, log(Gamma z), log(Gamma^T q) of one round, free of shifts."""
        u, q, v = kernel.sweep(log_z, rho)
        if not (u.min() > smallest and v.min() > smallest and np.isfinite(v.sum())):
            return None
        out_of_row = kernel.alpha.astype(np.float64) - kernel.shift
        return log_z, np.log(q) + unit + out_of_row, np.log(u) - out_of_row, np.log(v) + unit - kernel.gamma

    kernel.rebuild(log_z0)
    now = pair(log_z0)
    stopped = False
    for _ in range(L):
        if now is None:
            return None
        log_z, log_q, _, log_Gq = now
        next_z = (log_xi - log_Gq) / (1 + kappa)
        changes.append(float(np.abs(next_z - log_z).max()))
        if tolerance == "log" and 2 * changes[-1] <= delta:
            stopped = True
            break
        if np.abs(next_z - kernel.gamma).max() > reach:
            kernel.rebuild(next_z)
        following = pair(next_z)
        if tolerance == "paper" and following is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                change_q = np.linalg.norm(np.exp(following[1]) - np.exp(log_q))
                change_z = np.linalg.norm(np.exp(next_z) - np.exp(log_z))
            if change_q < delta and change_z < delta:
                stopped = True
                break
        now = following
    if now is None:
        return None
    log_z, log_q, log_Gz, log_Gq = now
    return FixedPoint(log_z + log_Gq, log_z, log_q, log_Gz, log_Gq, changes, stopped)


def _logsumexp(x: np.ndarray) -> float:
    top = x.max()
    return float(top + np.log(np.exp(x - top).sum()))
