"""One recursion with fused passes, and with the kernel's work limited to the pairs that matter (kernel=auto).

Three regimes, chosen from the cloud. *Nobody*: no two particles are near enough to exchange mass, and the proximal
step is the identity to 2^-53; it costs O(N p) to know that. *Few*: sparse products over a neighbour list with a skin.
*Many*: all pairs. Both bounds that make this exact are in the module ``screening``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from proxlearn.core import proximal
from proxlearn.core.cloud import PointCloud, Screen
from proxlearn.core.fused import fixed_point
from proxlearn.core.fused.absorbed_kernel import AbsorbedKernel, DenseAbsorbedKernel, SparseAbsorbedKernel
from proxlearn.core.fused.drift_base import FusedDrift
from proxlearn.core.fused.fixed_point import FixedPoint
from proxlearn.core.fused.log_kernel import FusedLogKernel, keeps_mass
from proxlearn.core.fused.neighbour_list import NeighbourList, build_list, largest_displacement, widest_empty_radius
from proxlearn.core.fused.screening import LOG_TOLERANCE, TOLERANCE, cutoff, oscillation, ranges, skin
from proxlearn.core.fused.softmax_binary_features import BinaryFeaturesDrift, is_applicable
from proxlearn.core.fused.softmax_drift import SoftmaxDrift
from proxlearn.core.fused.tanh_drift import TanhDrift
from proxlearn.core.fused.tanh_outputs_drift import TanhOutputsDrift
from proxlearn.core.fused.tanh_saturated import SaturatedTanhDrift, saturates
from proxlearn.core.fused.tanh_tiled import TiledTanhDrift
from proxlearn.core.fused.thread_layer import set_threads
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernel import KernelTooLarge
from proxlearn.core.problem import Problem
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.samples import Samples
from proxlearn.core.step import Info
from proxlearn.core.weights import UPDATES, cost_rows_columns, proximal_weights

IN_ONE_PIECE = 2**26
"""Bytes of P up to which it is kept whole; a larger one would spend more time on the way to memory than on
arithmetic."""


def _tanh(problem: Problem, hyper: Hyper, N: int, blocks: int) -> FusedDrift:
    if saturates(problem):
        return SaturatedTanhDrift(problem, hyper, N, blocks)
    whole = N * problem.samples.y.nbytes <= IN_ONE_PIECE
    return (TanhDrift if whole else TiledTanhDrift)(problem, hyper, N, blocks)


def _softmax(problem: Problem, hyper: Hyper, N: int, blocks: int) -> FusedDrift:
    return (BinaryFeaturesDrift if is_applicable(problem, N) else SoftmaxDrift)(problem, hyper, N, blocks)


DRIFTS: dict[str, Callable[[Problem, Hyper, int, int], FusedDrift]] = {
    "tanh": _tanh,
    "softmax": _softmax,
    "softmax_intercept": _softmax,
    "tanh_outputs": TanhOutputsDrift,
}
"""Neurons whose drift is fused; another neuron runs on the eager path."""

MOST_DENSE = 8192
"""Particles beyond which an N x N matrix is never formed."""


LARGEST_LENGTH = 1e150
"""Steps and cut-offs beyond this cannot be squared in any precision; in float32 they are infinite before."""
LARGE_LOG = 2.0**23
"""Size of log z up to which log rho = log z + log(Gamma^T q) keeps the mass to 2^-29; beyond, the mass is compared."""


class FusedStep:
    """``recursion.step`` for one problem and one set of hyperparameters, with memory of its own."""

    def __init__(self, problem: Problem, hyper: Hyper, N: int, threads: int) -> None:
        self.problem, self.hyper, self.N, self.threads = problem, hyper, N, threads
        set_threads(threads)
        self.drift = DRIFTS[problem.neuron.name](problem, hyper, N, threads)
        self.dtype = self.drift.dtype
        self._block = np.empty(threads, self.dtype)
        self._K: dict[np.dtype, np.ndarray] = {}
        self._weights: tuple[Tensor | None, np.ndarray, float] = (None, np.empty(0), 0.0)
        self._lists: dict[int, tuple[Screen, NeighbourList | None]] = {}
        self._moved: tuple[Tensor | None, Screen | None, float] = (None, None, 0.0)

    def set_hyper(self, hyper: Hyper) -> None:
        """Go on with other numbers (h, beta, epsilon): what a schedule does between two steps."""
        self.hyper = hyper
        self.drift.set_hyper(hyper)

    def set_samples(self, samples: Samples) -> None:
        """Go on with other samples, as many as before: what mini-batches do between two steps."""
        self.drift.set_samples(samples)

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        rho, spread = self._of_weights(cloud.log_rho)
        theta, w = self.drift(cloud.theta, rho, noise)
        hyper = self.hyper
        if hyper.weights != "proximal":
            log_rho, _ = UPDATES[hyper.weights](cloud, theta, torch.from_numpy(w), hyper, z0)
            return PointCloud(theta, log_rho, cloud.step + 1), None
        if hyper.kernel != "auto":
            return self._plain(cloud, theta, w, z0)
        max_step = largest_displacement(theta.numpy(), cloud.theta.numpy(), self._block)
        of_start, of_potential = ranges(z0.numpy(), w, cloud.log_rho.numpy(), 1 / hyper.beta)
        osc_z = max(of_start, hyper.h / hyper.epsilon * of_potential)
        radius = cutoff(max_step, spread, osc_z, self.N, hyper.epsilon) if max_step < LARGEST_LENGTH else math.inf
        if not radius < LARGEST_LENGTH:
            # A distance or a potential has left the range of this precision, so the weights are unknown (as with
            # kernel=log); the training loop detects this and stops.
            return PointCloud(theta, torch.full_like(cloud.log_rho, torch.nan), cloud.step + 1), None
        screen, found = self._screened(cloud, theta, w, z0, radius, max_step)
        if found is None:
            after = PointCloud(theta, cloud.log_rho, cloud.step + 1, screen)
            return after, IdentityInfo(cloud, theta, hyper, w)
        log_rho = torch.from_numpy(found.log_rho).to(theta.dtype)
        info = Info(cloud, theta, hyper, torch.from_numpy(w), _solution(found, hyper, log_rho))
        return PointCloud(theta, log_rho, cloud.step + 1, screen), info

    def _screened(
        self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor, radius: float, max_step: float
    ) -> tuple[Screen | None, FixedPoint | None]:
        """The screen to go on with and the fixed point; no fixed point where the weights stay."""
        epsilon = self.hyper.epsilon
        screen, before = cloud.screen, self._distance(cloud.theta, cloud.screen)
        tries, crowded = 0, True
        while screen is not None or (self.N > MOST_DENSE and tries == 0):
            if screen is not None:
                neighbours = self._list_of(screen)
                slack = screen.radius - before - self._distance(theta, screen)
                if neighbours is not None and neighbours.empty and radius <= slack:
                    return screen, None
                # A list that is short of the cut-off would fail the bound: solving over it first would be in vain.
                if neighbours is not None and not neighbours.empty and slack >= radius:
                    found = self._solve(self._sparse(cloud, theta, neighbours), w, z0)
                    if found is None:
                        crowded = False
                        break
                    excess = found.log_eta(slack, epsilon) - LOG_TOLERANCE
                    if excess <= 0:
                        return screen, found
                    radius = max(radius, math.sqrt(slack**2 + 2 * epsilon * 1.1 * excess))
                if neighbours is None or tries == 5:
                    break
            tries += 1
            screen = self._around(cloud.theta, 1.001 * radius + max_step + skin(radius + max_step, max_step))
            before = 0.0
        if self.N > MOST_DENSE:
            raise KernelTooLarge(self.N, MOST_DENSE, crowded)
        return self._dense(cloud, theta, w, z0, radius, max_step)

    def _dense(
        self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor, radius: float, max_step: float
    ) -> tuple[Screen | None, FixedPoint | None]:
        rows, columns = self._oriented(cloud.theta, theta)
        # How wide the next step's list would have to be, and so how long.
        wide = 1.02 * radius + 2 * max_step + skin(radius + max_step, max_step)
        kernel, found = self._solve_dense(rows, columns, cloud, w, z0, wide)
        screen = None
        if int(kernel.counts.sum()) - self.N <= self.N**2 // 40:
            screen = self._around(theta, wide)
            screen = screen if self._list_of(screen) is not None else None
        if found is None and self.dtype == np.float32:
            # Potentials of a small epsilon: float64 has ten times the range, and costs a tenth of the log domain.
            _, found = self._solve_dense(rows.astype(np.float64), columns.astype(np.float64), cloud, w, z0, wide)
        if found is None:
            found = self._in_log_domain(cloud, theta, w, z0)
        return screen, found

    def _solve_dense(
        self, rows: np.ndarray, columns: np.ndarray, cloud: PointCloud, w: np.ndarray, z0: Tensor, wide: float
    ) -> tuple[DenseAbsorbedKernel, FixedPoint | None]:
        """With all pairs, in the precision of ``rows``."""
        log_rho, K = cloud.log_rho.numpy().astype(np.float64), self._memory(rows.dtype)
        kernel = DenseAbsorbedKernel(rows, columns, self.hyper.epsilon, log_rho, self.threads, K, wide)
        return kernel, self._solve(kernel, w, z0)

    def _solve(self, kernel: AbsorbedKernel, w: np.ndarray, z0: Tensor) -> FixedPoint | None:
        hyper = self.hyper
        log_xi = -hyper.beta * w.astype(np.float64) - 1
        log_z0 = np.log(z0.numpy().astype(np.float64))
        found = fixed_point.solve(kernel, log_xi, hyper.kappa, log_z0, hyper.delta, hyper.L, hyper.tolerance)
        if found is None or np.abs(found.log_z).max() < LARGE_LOG or keeps_mass(found.log_rho, kernel.log_rho):
            return found
        return None

    def _in_log_domain(self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor) -> FixedPoint:
        """Where plain numbers leave their range: the reference's own solver, in float64."""
        hyper = self.hyper
        kernel = FusedLogKernel(
            *self._oriented(cloud.theta, theta), hyper.epsilon, self._memory(np.dtype(np.float64)), self.threads
        )
        log_rho, log_w, z = cloud.log_rho.double(), torch.from_numpy(w).double(), z0.double()
        made = proximal.solve(
            kernel, log_rho, -hyper.beta * log_w - 1, hyper.kappa, z.log(), hyper.delta, hyper.L, hyper.tolerance
        )
        log_z, log_q, empty = made.log_z.numpy(), made.log_q.numpy(), np.empty(0)
        return FixedPoint(made.log_rho.numpy(), log_z, log_q, empty, empty, made.changes.tolist(), made.stopped)

    def _memory(self, dtype: np.dtype) -> np.ndarray:
        """For an N x N matrix, the same at every step."""
        if dtype not in self._K:
            self._K[dtype] = np.empty((self.N, self.N), dtype)
        return self._K[dtype]

    def _plain(self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor) -> tuple[PointCloud, Info]:
        """kernel=dense|log: the reference's proximal step after the fused drift."""
        _, solution = proximal_weights(cloud, theta, torch.from_numpy(w), self.hyper, z0)
        info = Info(cloud, theta, self.hyper, torch.from_numpy(w), solution)
        return PointCloud(theta, solution.log_rho, cloud.step + 1), info

    def _sparse(self, cloud: PointCloud, new: Tensor, neighbours: NeighbourList) -> SparseAbsorbedKernel:
        rows, columns = self._oriented(cloud.theta, new)
        log_rho = cloud.log_rho.numpy().astype(np.float64)
        return SparseAbsorbedKernel(rows, columns, self.hyper.epsilon, log_rho, self.threads, neighbours)

    def _oriented(self, old: Tensor, new: Tensor) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = cost_rows_columns(old, new, self.hyper.orientation)
        return rows.numpy(), columns.numpy()

    def _around(self, reference: Tensor, radius: float) -> Screen:
        """A screen around a cloud; where its list is empty, as wide as it stays so."""
        screen = Screen(reference, radius)
        neighbours = self._list_of(screen)
        if neighbours is not None and neighbours.empty:
            screen = Screen(reference, max(radius, widest_empty_radius(reference.numpy(), radius)))
            self._lists = {id(screen): (screen, neighbours)}
        return screen

    def _list_of(self, screen: Screen) -> NeighbourList | None:
        """The list, a function of the screen alone; remembered while the screen lives."""
        if id(screen) not in self._lists:
            most = self.N**2 // 20 if self.N <= MOST_DENSE else 1000 * self.N
            self._lists = {id(screen): (screen, build_list(screen.reference.numpy(), screen.radius, most))}
        return self._lists[id(screen)][1]

    def _distance(self, theta: Tensor, screen: Screen | None) -> float:
        """How far a cloud has moved from the screen's reference; the newest answer is the next step's first
        question."""
        if screen is None:
            return 0.0
        if self._moved[0] is not theta or self._moved[1] is not screen:
            self._moved = (theta, screen, largest_displacement(theta.numpy(), screen.reference.numpy(), self._block))
        return self._moved[2]

    def _of_weights(self, log_rho: Tensor) -> tuple[np.ndarray, float]:
        """rho and osc(log rho); they stay the same for as long as nobody has neighbours."""
        if self._weights[0] is not log_rho:
            values = log_rho.numpy()
            self._weights = (log_rho, np.exp(values), oscillation(values))
        return self._weights[1], self._weights[2]


class IdentityInfo(Info):
    """The proximal step as the identity: its potentials are known in closed form, and computed when somebody asks."""

    def __init__(self, previous: PointCloud, theta: Tensor, hyper: Hyper, w: np.ndarray) -> None:
        # The solution is made on demand: in this regime a step must not pay for it.
        for name, value in (("previous", previous), ("theta", theta), ("hyper", hyper), ("w", torch.from_numpy(w))):
            object.__setattr__(self, name, value)

    @property
    def stopped(self) -> bool:
        return True

    @property
    def finite(self) -> bool:
        # The farthest that a particle went is finite, and the weights are those from before.
        return True

    @property
    def solution(self) -> ProximalSolution:
        log_rho, hyper = self.previous.log_rho, self.hyper
        log_z = (-hyper.beta * self.w - 1 - log_rho) / hyper.kappa
        stay = (self.theta - self.previous.theta).square().sum(1) / (2 * hyper.epsilon)
        error = torch.tensor([TOLERANCE / 2], dtype=torch.float64)
        return ProximalSolution(log_rho, log_z, log_rho - log_z + stay, 0, error, hyper.delta, stopped=True)


def _solution(found: FixedPoint, hyper: Hyper, log_rho: Tensor) -> ProximalSolution:
    log_z, log_q = (torch.from_numpy(values).to(log_rho.dtype) for values in (found.log_z, found.log_q))
    changes = torch.tensor(found.changes, dtype=torch.float64)
    return ProximalSolution(log_rho, log_z, log_q, len(changes), changes, hyper.delta, found.stopped)
