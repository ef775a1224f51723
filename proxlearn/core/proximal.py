"""The proximal update of the weights: the fixed point of Algorithm 1 in the log domain, for any kernel.

The update minimises, over couplings M >= 0 with M 1 = rho_{k-1} and rho = M^T 1, the strictly convex objective

    <C, M>/2 + epsilon <M, log M> + h <w + log(rho)/beta, rho>,

where w is frozen at the old cloud. The minimiser is M = diag(q) Gamma diag(z) with

    z o (Gamma^T q) = xi o z^(-kappa),    q o (Gamma z) = rho_{k-1},    kappa = beta epsilon / h.

Each round multiplies max|change of log z| by at most 1/(1 + kappa). With Delta = max|log z_{l+1} - log z_l| the pair
(z_l, q_l) has |log rho - log rho*| <= 2 Delta: log rho_l - log rho* = (log z_l - log z_{l+1}) - kappa (log z_{l+1} -
log z*), and the contraction bounds the last difference by Delta / kappa. The bound therefore holds for the pair
*before* the last z. Algorithm 1 also returns that pair, because it leaves the loop before l advances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from proxlearn.core.kernels.kernel import Kernel, RangedKernel
from proxlearn.core.options import Tolerance


@dataclass(frozen=True)
class ProximalSolution:
    """The result of the fixed-point iteration: the new weights, the potentials and the error bound."""

    log_rho: Tensor
    log_z: Tensor
    log_q: Tensor
    rounds: int
    changes: Tensor
    """max|change of log z| in every round."""
    delta: float
    stopped: bool
    """Whether the chosen tolerance was met within L rounds."""

    @property
    def error(self) -> Tensor:
        """The bound on max|log rho - log rho*|, where rho* is the exact solution."""
        return 2 * self.changes[-1]

    @property
    def contraction(self) -> float:
        """Ratio of the change in the second round to that in the first, or NaN after a single round.

        Apart from rounding, it is at most 1/(1 + kappa).
        """
        return float(self.changes[1] / self.changes[0]) if len(self.changes) > 1 else math.nan

    @property
    def converged(self) -> bool:
        """Whether the tolerance was met *and* the bound on the error of log rho is at most delta.

        The paper's criterion, which uses absolute norms, is met at once if the weights are near 1e-8, so it is not
        sufficient.
        """
        return self.stopped and bool(self.error <= self.delta)


def solve(
    kernel: Kernel,
    log_rho: Tensor,
    log_xi: Tensor,
    kappa: float,
    log_z0: Tensor,
    delta: float,
    L: int,
    tolerance: Tolerance,
) -> ProximalSolution:
    """Run lines 6-19 of Algorithm 1 and return the new weights and potentials.

    With ``delta=0``, all L rounds are run without waiting for the device; otherwise, each round waits for it once.
    """
    log_z = log_z0
    log_q = log_rho - kernel.log_apply(log_z)
    changes: list[Tensor] = []
    stopped = False
    for _ in range(L):
        next_z = (log_xi - kernel.log_apply_transpose(log_q)) / (1 + kappa)
        changes.append((next_z - log_z).abs().amax())
        if tolerance == "log" and delta > 0 and _holds(2 * changes[-1] <= delta, kernel, changes[-1]):
            stopped = True
            break
        next_q = log_rho - kernel.log_apply(next_z)
        if tolerance == "paper" and delta > 0:
            criterion = _paper_criterion(kernel, log_z, next_z, log_q, next_q, delta)
            if _holds(criterion, kernel, changes[-1]):
                stopped = True
                break
        log_z, log_q = next_z, next_q
    return ProximalSolution(
        log_rho=kernel.log_transport(log_rho, log_z),
        log_z=log_z,
        log_q=log_q - kernel.row_shift,
        rounds=len(changes),
        changes=torch.stack(changes),
        delta=delta,
        stopped=stopped,
    )


def _holds(criterion: Tensor, kernel: Kernel, change: Tensor) -> bool:
    """Return whether the criterion holds, and pass the change to a RangedKernel; this waits for the device once."""
    if not isinstance(kernel, RangedKernel):
        return bool(criterion)
    size = float(torch.where(criterion, -1.0, change))
    kernel.limit_change(size)
    return size < 0


def _paper_criterion(kernel: Kernel, z: Tensor, next_z: Tensor, q: Tensor, next_q: Tensor, delta: float) -> Tensor:
    """Return whether the condition in line 13 of Algorithm 1 holds: the changes of q and z have norms below delta."""
    # The norms are computed in float64, because q may exceed the range of float32 even if the weights do not.
    change_q = torch.exp((next_q - kernel.row_shift).double()) - torch.exp((q - kernel.row_shift).double())
    change_z = next_z.double().exp() - z.double().exp()
    norms = torch.stack((torch.linalg.vector_norm(change_q), torch.linalg.vector_norm(change_z)))
    return (norms < delta).all()


def objective(
    solution: ProximalSolution, log_rho: Tensor, cost_stay: Tensor, w: Tensor, beta: float, h: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return the proximal objective at the diagonal M, with which every particle keeps its mass, and at the solution.

    At the solution M = diag(q) Gamma diag(z), the two transport terms add up to
    epsilon (<rho_{k-1}, log q> + <rho_k, log z>), so the computation is O(N). ``cost_stay`` is the diagonal of C.
    """

    def risk_and_entropy(log_weights: Tensor) -> Tensor:
        return h * torch.sum(log_weights.exp() * (w + log_weights / beta))

    rho, rho_next = log_rho.exp(), solution.log_rho.exp()
    before = torch.sum(rho * (cost_stay / 2 + epsilon * log_rho)) + risk_and_entropy(log_rho)
    transport = epsilon * (torch.sum(rho * solution.log_q) + torch.sum(rho_next * solution.log_z))
    return before, transport + risk_and_entropy(solution.log_rho)
