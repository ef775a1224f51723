"""The fixed point of Algorithm 1 with an absorbed kernel; rounds, result and error are defined as in proximal.solve.

The rounds are one function of two kernel operations, ``build`` and ``sweep``. For kernels in memory, the function is
compiled as a whole, so that a fixed point is one call; for a TileKernel, whose sweeps take long, the function runs in
Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from proxlearn.core.fused import absorbed_kernel
from proxlearn.core.fused.absorbed_kernel import AllPairsKernel, ShortKernel, SparseKernel
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import FAST, exp, log8
from proxlearn.core.options import Tolerance

SHIFT_LIMIT = {np.dtype(np.float32): 30.0, np.dtype(np.float64): 300.0}
"""Largest difference between log z and the shift, by precision; if it is exceeded, K is built again."""
SMALLEST = {np.dtype(np.float32): 1e-28, np.dtype(np.float64): 1e-280}
"""Value below which an entry of u or v may have lost terms to underflow; the log domain must then be used."""
OF_ALL_Q = {np.dtype(np.float32): 1e-30, np.dtype(np.float64): 1e-290}
"""The same limit for v, as a multiple of the sum of q^. Underflow in K can change v by the smallest entry of K times
the sum of q^, which is large if log z is far from the shift. The limit is five times this change divided by the
rounding unit."""


@dataclass(frozen=True)
class FixedPoint:
    """The result of Algorithm 1: the new weights and the pair (z, q), as logarithms in float64."""

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
        """Return the logarithm of a bound on the change of log rho that the omitted entries of Gamma would cause.

        Each omitted entry is at most exp(-cutoff^2 / 2 epsilon).
        """
        rows = _logsumexp(self.log_z) - self.log_Gz.min()
        columns = _logsumexp(self.log_q) - self.log_Gq.min()
        return float(max(rows, columns) - cutoff**2 / (2 * epsilon))


@compile_pass(fastmath=FAST, error_model="numpy")
def _next_z(u, q, v, share, gamma, unit, log_xi, kappa, log_z, log_Gq, next_z):  # type: ignore[no-untyped-def]
    """Compute log(Gamma^T q) and the next log z.

    Return the largest change of log z, the largest difference between the next log z and the shift, and the smallest
    entry of u and v. For the last number, v is first divided by ``share`` times the sum of q if this product exceeds 1.
    """
    of_q = 1 / max(1.0, share * q.sum())
    factor = 1 / (1 + kappa)
    for j in range(len(log_z)):
        log_Gq[j] = log8(v[j]) + unit - gamma[j]
        next_z[j] = (log_xi[j] - log_Gq[j]) * factor
    change = reach = 0.0
    least = np.inf
    for j in range(len(log_z)):
        # NaN and infinity count as the smallest value.
        in_range = 0 < u[j] < np.inf and 0 < v[j] < np.inf
        least = min(least, min(of_q * v[j], u[j]) if in_range else 0.0)
        change = max(change, abs(next_z[j] - log_z[j]))
        reach = max(reach, abs(next_z[j] - gamma[j]))
    return change, reach, least


@compile_pass(fastmath=FAST, error_model="numpy")
def _scaled_z(log_z, gamma, z):  # type: ignore[no-untyped-def]
    """Compute z^ = exp(log z - gamma)."""
    for j in range(len(z)):
        z[j] = exp(log_z[j] - gamma[j])


@compile_pass(fastmath=FAST, error_model="numpy")
def _scaled_distance(x, x_log_scale, y, y_log_scale, log_unit):  # type: ignore[no-untyped-def]
    """Return the Euclidean distance between e^x_log_scale x and e^y_log_scale y, multiplied by e^log_unit."""
    total = 0.0
    for i in range(len(x)):
        difference = x[i] * exp(x_log_scale[i] + log_unit) - y[i] * exp(y_log_scale[i] + log_unit)
        total += difference * difference
    return np.sqrt(total)


def _make_rounds(build: Callable[..., None], sweep: Callable[..., None]) -> Callable[..., Any]:
    """Return the function that runs the rounds with the two operations of a kernel; the function can be compiled."""

    def rounds(kernel, gamma, rho, unit, log_xi, kappa, log_z, delta, L, by_norms, reach, smallest, share):  # type: ignore[no-untyped-def]
        """Run the rounds, starting from log_z.

        Return whether no number overflowed or underflowed, the number of rounds, whether the tolerance was met, the
        logarithms of the new rho, z, Gamma z and Gamma^T q, and the change of log z in each round. ``gamma`` is memory
        for the shift, in the precision of K. ``by_norms`` selects the paper's criterion.
        """
        N = len(log_z)
        changes = np.empty(L)
        number, stopped = 0, False
        z, u, q, v = np.empty(N), np.empty(N), np.empty(N), np.empty(N)
        log_scale, log_Gq, next_z = np.empty(N), np.empty(N), np.empty(N)
        # A loop instead of gamma[:] = log_z, because the error message for arrays of different shapes takes a second to
        # compile.
        for j in range(N):
            gamma[j] = log_z[j]
        build(kernel, gamma, log_scale)
        _scaled_z(log_z, gamma, z)
        sweep(kernel, z, rho, u, q, v)
        moved, away, least = _next_z(u, q, v, share, gamma, unit, log_xi, kappa, log_z, log_Gq, next_z)
        for _ in range(L):
            if not least > smallest:
                break
            changes[number] = moved
            number += 1
            if not by_norms and 2 * moved <= delta:
                stopped = True
                break
            new_gamma, new_scale = gamma, log_scale
            if away > reach:
                new_gamma, new_scale = np.empty_like(gamma), np.empty(N)
                for j in range(N):
                    new_gamma[j] = next_z[j]
                build(kernel, new_gamma, new_scale)
            new_z, new_u, new_q, new_v = np.empty(N), np.empty(N), np.empty(N), np.empty(N)
            new_Gq, following = np.empty(N), np.empty(N)
            _scaled_z(next_z, new_gamma, new_z)
            sweep(kernel, new_z, rho, new_u, new_q, new_v)
            moved, away, least = _next_z(
                new_u, new_q, new_v, share, new_gamma, unit, log_xi, kappa, next_z, new_Gq, following
            )
            if by_norms:
                # If the change in z is not small, the change in q does not matter.
                near = _scaled_distance(new_z, new_gamma, z, gamma, 0.0) < delta
                if near and _scaled_distance(new_q, new_scale, q, log_scale, unit) < delta:
                    stopped = True
                    break
            gamma, log_scale, z, u, q, v = new_gamma, new_scale, new_z, new_u, new_q, new_v
            log_z, log_Gq, next_z = next_z, new_Gq, following
        log_Gz = np.log(u) - log_scale
        # Computed from z^ and v, because rounding in log z + log(Gamma^T q) would change the mass if both terms are
        # large.
        log_rho = np.log(z * v) + unit
        return stopped or least > smallest, number, stopped, log_rho, log_z, log_Gz, log_Gq, changes

    return rounds


DENSE = compile_pass()(_make_rounds(absorbed_kernel.build_dense, absorbed_kernel.sweep_dense))
SHORT = compile_pass()(_make_rounds(absorbed_kernel.build_short, absorbed_kernel.sweep_short))
_SPARSE = compile_pass()(_make_rounds(absorbed_kernel.build_sparse, absorbed_kernel.sweep_sparse))
_ROUNDS: dict[type, Callable[..., Any]] = {
    AllPairsKernel: DENSE,
    ShortKernel: SHORT,
    SparseKernel: _SPARSE,
}
_PYTHON_ROUNDS = _make_rounds(
    lambda kernel, *arguments: kernel.build(*arguments), lambda kernel, *arguments: kernel.sweep(*arguments)
)
"""The rounds of a TileKernel, whose methods are called from Python."""


def arguments(
    kernel: Any,
    log_rho: np.ndarray,
    log_xi: np.ndarray,
    kappa: float,
    log_z0: np.ndarray,
    delta: float,
    L: int,
    tolerance: Tolerance,
) -> tuple[Any, ...]:
    """Convert the arguments of ``solve`` to the arguments of the rounds."""
    unit = float(log_rho.max())
    smallest = SMALLEST[kernel.dtype]
    return (
        kernel,
        np.empty(len(log_z0), kernel.dtype),
        np.exp(log_rho - unit),
        unit,
        log_xi,
        kappa,
        log_z0,
        delta,
        L,
        tolerance == "paper",
        SHIFT_LIMIT[kernel.dtype],
        smallest,
        OF_ALL_Q[kernel.dtype] / smallest,
    )


def solve(
    kernel: Any,
    log_rho: np.ndarray,
    log_xi: np.ndarray,
    kappa: float,
    log_z0: np.ndarray,
    delta: float,
    L: int,
    tolerance: Tolerance,
) -> FixedPoint | None:
    """Run the rounds as in proximal.solve; return None if a number overflows or underflows.

    The kernel is an AllPairsKernel, a ShortKernel, a SparseKernel or a TileKernel. All vectors are in float64.
    """
    in_range, number, stopped, new_log_rho, log_z, log_Gz, log_Gq, changes = _ROUNDS.get(type(kernel), _PYTHON_ROUNDS)(
        *arguments(kernel, log_rho, log_xi, kappa, log_z0, delta, L, tolerance)
    )
    if not in_range:
        return None
    # log q is not computed from q^, which is 0 if a weight is beyond the range of plain numbers.
    return FixedPoint(new_log_rho, log_z, log_rho - log_Gz, log_Gz, log_Gq, changes[:number].tolist(), stopped)


def _logsumexp(x: np.ndarray) -> float:
    top = x.max()
    return float(top + np.log(np.exp(x - top).sum()))
