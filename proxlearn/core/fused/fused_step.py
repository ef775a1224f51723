"""The compiled step, with fused passes and, for kernel=auto, with a kernel limited to the relevant pairs.

Each step is in one of four regimes. *Identity*: no two particles are close enough to exchange mass, and the proximal
step is the identity up to 2^-53; the check costs O(N p). *Sparse*: few pairs are close enough, and the products run
over a neighbour list with a skin. *Dense*: all pairs are stored as a matrix, for up to 8192 particles. *Tiled*: for
more particles with many neighbours, tiles beyond the cut-off are skipped; the others are stored if they fit in memory,
and otherwise computed again in every round with the same bits. The bounds that make this exact are in ``screening``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from proxlearn.core import proximal
from proxlearn.core.cloud import PointCloud, Screen
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.fused import compile_ahead, fixed_point, one_step_list
from proxlearn.core.fused.absorbed_kernel import AllPairsKernel, ShortKernel, SparseKernel, dense_kernel, sparse_kernel
from proxlearn.core.fused.drifts import Drift, make_drift
from proxlearn.core.fused.fixed_point import FixedPoint
from proxlearn.core.fused.log_kernel import FusedLogKernel
from proxlearn.core.fused.neighbour_list import (
    NeighbourList,
    build_list,
    largest_displacement,
    mean_neighbours,
    widest_empty_radius,
)
from proxlearn.core.fused.one_step_list import list_between
from proxlearn.core.fused.screening import LOG_TOLERANCE, IdentityInfo, cutoff, oscillation, ranges, skin
from proxlearn.core.fused.tanh_saturated import SaturatedTanhDrift
from proxlearn.core.fused.thread_layer import row_blocks, set_threads
from proxlearn.core.fused.tile_kernel import TileKernel, tile_memory
from proxlearn.core.hyper import Hyper
from proxlearn.core.kernels.choice import make_kernel
from proxlearn.core.kernels.kernel import Kernel
from proxlearn.core.kernels.tiled import SHARE
from proxlearn.core.proximal import ProximalSolution
from proxlearn.core.samples import Samples
from proxlearn.core.step import Info
from proxlearn.core.weight_updates import UPDATES, cost_rows_columns, proximal_weights
from proxlearn.memory import free_memory, memory_limit
from proxlearn.portability import one_thread, physical_memory

MOST_DENSE = 8192
"""Number of particles above which the kernel consists of tiles or uses a neighbour list, instead of one N x N matrix.
The number is smaller if such a matrix in float64 exceeds 1/SHARE of the total memory or of the user's limit. The free
memory is not taken into account, because the bits of a run depend on the number.
"""
MOST_NEIGHBOURS = 250
"""Mean number of neighbours above which a cloud of more than MOST_DENSE particles uses tiles instead of a list."""
LARGE_SHARE = 0.6
"""Largest share of tiles within the cut-off for which the other tiles are skipped."""
MOST_SOLUTIONS = 4
"""Maximum number of times that a step is solved, each time with a larger cut-off; with tiles, the last solution uses
all tiles.
"""

LARGEST_LENGTH = 1e150
"""Largest step or cut-off that can be squared in float64 without overflow; a float32 square overflows earlier."""


class FusedStep:
    """The function ``core.step.step`` for one functional and one set of hyperparameters, with preallocated memory."""

    most_dense = MOST_DENSE
    tile_kernel: Callable[..., TileKernel] = TileKernel

    def __init__(self, functional: Functional, hyper: Hyper, N: int, threads: int) -> None:
        self.hyper, self.N = hyper, N
        self.most_whole = min(MOST_DENSE, math.isqrt((memory_limit() or physical_memory()) // (8 * SHARE)))
        self.most_dense = min(self.most_dense, self.most_whole)
        set_threads(threads)
        self.drift = self._make_drift(functional)
        if threads > 1 and self.most_dense >= N and hyper.weights == "proximal" and hyper.kernel == "auto":
            dtype, p = torch.empty(0, dtype=functional.dtype).numpy().dtype, sum(functional.blocks.values())
            compile_ahead.start(dtype, N, p, isinstance(self.drift, SaturatedTanhDrift))
        self.dtype = np.dtype(np.float64)
        self._K: dict[np.dtype, np.ndarray] = {}
        self._tiles: dict[np.dtype, np.ndarray] = {}
        self._weights: tuple[Tensor | None, np.ndarray, float] = (None, np.empty(0), 0.0)
        self._lists: dict[int, tuple[Screen, NeighbourList | None]] = {}
        self._moved: tuple[Tensor | None, Screen | None, float] = (None, None, 0.0)

    def _make_drift(self, functional: Functional) -> Drift:
        return make_drift(functional, self.hyper, self.N, row_blocks(self.N))

    def set_hyper(self, hyper: Hyper) -> None:
        """Replace h, beta and epsilon, as a schedule does between two steps."""
        self.hyper = hyper
        self.drift.set_hyper(hyper)

    def set_samples(self, samples: Samples) -> None:
        """Replace the samples with the same number of other samples, as mini-batches do between two steps."""
        self.drift.set_samples(samples)

    def __call__(self, cloud: PointCloud, noise: Tensor, z0: Tensor) -> tuple[PointCloud, Info | None]:
        if cloud.theta.numpy().dtype != self.dtype:
            self.dtype = cloud.theta.numpy().dtype
        rho, osc_log_rho = self._weights_of(cloud.log_rho)
        theta, w = self.drift(cloud.theta, rho, noise)
        hyper = self.hyper
        if hyper.weights != "proximal":
            # The bits of a sum over more than 2^15 numbers depend on the number of torch's threads.
            with one_thread():
                log_rho, solution = UPDATES[hyper.weights](cloud, theta, torch.from_numpy(w), hyper, z0)
            info = None if solution is None else Info(cloud, theta, hyper, torch.from_numpy(w), solution)
            return PointCloud(theta, log_rho, cloud.step + 1), info
        if hyper.kernel != "auto":
            return self._with_reference_kernel(cloud, theta, w, z0)
        max_step = largest_displacement(theta.numpy(), cloud.theta.numpy())
        osc_z0, osc_potential = ranges(z0.numpy(), w, cloud.log_rho.numpy(), 1 / hyper.beta)
        osc_z = max(osc_z0, hyper.h / hyper.epsilon * osc_potential)
        radius = cutoff(max_step, osc_log_rho, osc_z, self.N, hyper.epsilon) if max_step < LARGEST_LENGTH else math.inf
        if not radius < LARGEST_LENGTH:
            # A distance or a potential has left the range of this precision, so the weights are unknown (as with
            # kernel=log); the training loop detects this and stops.
            return PointCloud(theta, torch.full_like(cloud.log_rho, torch.nan), cloud.step + 1), None
        screen, fixed_point = self._screened(cloud, theta, w, z0, radius, max_step)
        if fixed_point is None:
            after = PointCloud(theta, cloud.log_rho, cloud.step + 1, screen)
            return after, IdentityInfo(cloud, theta, hyper, w)
        solution = _proximal_solution(fixed_point, hyper)
        info = Info(cloud, theta, hyper, torch.from_numpy(w), solution)
        return PointCloud(theta, solution.log_rho, cloud.step + 1, screen), info

    def _screened(
        self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor, radius: float, max_step: float
    ) -> tuple[Screen | None, FixedPoint | None]:
        """Return the screen for the next step and the fixed point.

        The screen is None if the next step needs a new one; the fixed point is None if the weights do not change.
        """
        if self._is_for_one_step(theta, radius, max_step):
            return None, self._with_one_list(cloud, theta, w, z0, radius)
        epsilon = self.hyper.epsilon
        screen, before = cloud.screen, self._distance(cloud.theta, cloud.screen)
        tries = 0
        while screen is not None or (self.most_dense < self.N and tries == 0):
            if screen is not None:
                neighbours = self._list_of(screen)
                slack = screen.radius - before - self._distance(theta, screen)
                if neighbours is not None and neighbours.empty and radius <= slack:
                    return screen, None
                # The solution over a list that does not reach the cut-off would fail the bound, so it is not computed.
                if neighbours is not None and not neighbours.empty and slack >= radius:
                    kernel = sparse_kernel(*self._oriented(cloud.theta, theta), epsilon, neighbours, slack)
                    solution = self._solve(kernel, cloud, w, z0)
                    if solution is None:
                        break
                    excess = solution.log_eta(slack, epsilon) - LOG_TOLERANCE
                    if excess <= 0:
                        return screen, solution
                    radius = max(radius, math.sqrt(slack**2 + 2 * epsilon * 1.1 * excess))
                if neighbours is None or tries == 5:
                    break
            tries += 1
            list_radius = 1.001 * radius + max_step + skin(radius + max_step, max_step)
            if self.most_dense < self.N and mean_neighbours(cloud.theta.numpy(), list_radius) > MOST_NEIGHBOURS:
                break
            screen = self._around(cloud.theta, list_radius)
            before = 0.0
        if self.most_dense < self.N:
            return None, self._tiled(cloud, theta, w, z0, radius)
        # The radius determines the length of the next step's list.
        list_radius = 1.02 * radius + 2 * max_step + skin(radius + max_step, max_step)
        near, solution = self._dense(cloud, theta, w, z0, list_radius)
        screen = None
        if near <= self.N**2 // 40:
            screen = self._around(theta, list_radius)
            screen = screen if self._list_of(screen) is not None else None
        return screen, solution

    def _is_for_one_step(self, theta: Tensor, radius: float, max_step: float) -> bool:
        """Return whether to build a neighbour list for a single step only.

        This is the case for few particles in few dimensions if no list would remain valid for a second step.
        """
        few = self.N <= one_step_list.MOST_ROWS and theta.shape[1] <= one_step_list.MOST_COORDINATES
        return few and skin(radius + max_step, max_step) == 0

    def _with_one_list(
        self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor, radius: float
    ) -> FixedPoint | None:
        """Solve with the pairs within the cut-off, which is enlarged until the omitted pairs cannot change a weight.

        Return None if no pair is within the cut-off, so that the weights do not change.
        """
        rows, columns = self._oriented(cloud.theta, theta)
        for _ in range(MOST_SOLUTIONS):
            neighbours = list_between(rows, columns, radius, self.N**2 // 20)
            if neighbours is None:
                break
            if neighbours.empty:
                return None
            kernel = sparse_kernel(rows, columns, self.hyper.epsilon, neighbours, radius)
            solution = self._solve(kernel, cloud, w, z0)
            if solution is None:
                break
            excess = solution.log_eta(radius, self.hyper.epsilon) - LOG_TOLERANCE
            if excess <= 0:
                return solution
            radius = math.sqrt(radius**2 + 2 * self.hyper.epsilon * 1.1 * excess)
        return self._dense(cloud, theta, w, z0, radius)[1]

    def _dense(
        self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor, limit: float
    ) -> tuple[int, FixedPoint]:
        """Solve with all pairs; return the number of pairs (i, j), j != i, within ``limit``, and the solution."""
        rows, columns = self._oriented(cloud.theta, theta)
        kernel, solution = self._solve_dense(rows, columns, cloud, w, z0, limit)
        if solution is None and self.dtype == np.float32:
            # With a small epsilon, float32 fails; float64 has ten times the range, at a tenth of the log domain's cost.
            rows, columns = rows.astype(np.float64), columns.astype(np.float64)
            _, solution = self._solve_dense(rows, columns, cloud, w, z0, limit)
        if solution is None:
            solution = self._in_log_domain(cloud, theta, w, z0)
        return int(kernel.counts.sum()) - self.N, solution

    def _tiled(self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor, radius: float) -> FixedPoint:
        """Solve with the tiles within the cut-off, which is enlarged until the skipped tiles cannot change a weight."""
        epsilon = self.hyper.epsilon
        rows, columns = self._oriented(cloud.theta, theta)
        for dtype in dict.fromkeys((self.dtype, np.dtype(np.float64))):
            for number in range(MOST_SOLUTIONS):
                cutoff = radius if number < MOST_SOLUTIONS - 1 else math.inf
                rows, columns = rows.astype(dtype, copy=False), columns.astype(dtype, copy=False)
                kernel = self.tile_kernel(rows, columns, epsilon, cutoff, self._tile_memory(dtype))
                if not kernel.is_complete and kernel.active_share > LARGE_SHARE:
                    # Skipping tiles would save little and might require a second solution. The memory is freed first.
                    del kernel
                    kernel = self.tile_kernel(rows, columns, epsilon, math.inf, self._tile_memory(dtype))
                solution = self._solve(kernel, cloud, w, z0)
                if solution is None:
                    break
                excess = 0.0 if kernel.is_complete else solution.log_eta(cutoff, epsilon) - LOG_TOLERANCE
                if excess <= 0:
                    return solution
                radius = math.sqrt(radius**2 + 2 * epsilon * 1.1 * excess)
        return self._in_log_domain(cloud, theta, w, z0)

    def _solve_dense(
        self, rows: np.ndarray, columns: np.ndarray, cloud: PointCloud, w: np.ndarray, z0: Tensor, limit: float
    ) -> tuple[AllPairsKernel, FixedPoint | None]:
        """Solve with all pairs, in the precision of ``rows``; the kernel counts the pairs within ``limit``."""
        kernel = dense_kernel(rows, columns, self.hyper.epsilon, self._memory(rows.dtype), limit)
        return kernel, self._solve(kernel, cloud, w, z0)

    def _solve(
        self,
        kernel: AllPairsKernel | SparseKernel | ShortKernel | TileKernel,
        cloud: PointCloud,
        w: np.ndarray,
        z0: Tensor,
    ) -> FixedPoint | None:
        hyper, log_rho = self.hyper, cloud.log_rho.numpy()
        log_xi = -hyper.beta * w.astype(np.float64) - 1
        log_z0 = np.log(z0.numpy().astype(np.float64))
        return fixed_point.solve(kernel, log_rho, log_xi, hyper.kappa, log_z0, hyper.delta, hyper.L, hyper.tolerance)

    def _in_log_domain(self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor) -> FixedPoint:
        """Run the reference solver in float64, for clouds on which the other solvers overflow or underflow."""
        hyper, (rows, columns) = self.hyper, self._oriented(cloud.theta, theta)
        if self.most_whole < self.N:
            kernel: Kernel = make_kernel(
                "log", torch.from_numpy(rows).double(), torch.from_numpy(columns).double(), hyper.epsilon
            )
        else:
            memory = self._memory(np.dtype(np.float64))
            kernel = FusedLogKernel(rows, columns, hyper.epsilon, memory, row_blocks(self.N))
        log_rho, log_w, z = cloud.log_rho, torch.from_numpy(w).double(), z0.double()
        solution = proximal.solve(
            kernel, log_rho, -hyper.beta * log_w - 1, hyper.kappa, z.log(), hyper.delta, hyper.L, hyper.tolerance
        )
        log_z, log_q, empty = solution.log_z.numpy(), solution.log_q.numpy(), np.empty(0)
        changes = solution.changes.tolist()
        return FixedPoint(solution.log_rho.numpy(), log_z, log_q, empty, empty, changes, solution.stopped)

    def _tile_memory(self, dtype: np.dtype) -> np.ndarray:
        """Return memory for tiles; the first call allocates a share of the free memory, and later calls return it."""
        if dtype not in self._tiles:
            self._tiles[dtype] = tile_memory(self.N, dtype, self._free_memory() // SHARE)
        return self._tiles[dtype]

    def _free_memory(self) -> int:
        """Return the number of bytes of free memory that this process may use."""
        return free_memory()

    def _memory(self, dtype: np.dtype) -> np.ndarray:
        """Return memory for an N x N matrix, which is reused at every step."""
        if dtype not in self._K:
            self._K[dtype] = np.empty((self.N, self.N), dtype)
        return self._K[dtype]

    def _with_reference_kernel(
        self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor
    ) -> tuple[PointCloud, Info]:
        """Run the reference proximal step after the fused drift, for kernel=dense and kernel=log."""
        _, solution = proximal_weights(cloud, theta, torch.from_numpy(w), self.hyper, z0)
        info = Info(cloud, theta, self.hyper, torch.from_numpy(w), solution)
        return PointCloud(theta, solution.log_rho, cloud.step + 1), info

    def _oriented(self, old: Tensor, new: Tensor) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = cost_rows_columns(old, new, self.hyper.orientation)
        return rows.numpy(), columns.numpy()

    def _around(self, reference: Tensor, radius: float) -> Screen:
        """Return a screen around a cloud; if no pair is within ``radius``, a larger one may be chosen."""
        screen = Screen(reference, radius)
        neighbours = self._list_of(screen)
        if neighbours is not None and neighbours.empty:
            screen = Screen(reference, max(radius, widest_empty_radius(reference.numpy(), radius)))
            self._lists = {id(screen): (screen, neighbours)}
        return screen

    def _list_of(self, screen: Screen) -> NeighbourList | None:
        """Return the neighbour list of a screen, or None if it would be too long; the most recent list is cached."""
        if id(screen) not in self._lists:
            most = self.N**2 // 20 if self.N <= MOST_DENSE else 2 * MOST_NEIGHBOURS * self.N
            self._lists = {id(screen): (screen, build_list(screen.reference.numpy(), screen.radius, most))}
        return self._lists[id(screen)][1]

    def _distance(self, theta: Tensor, screen: Screen | None) -> float:
        """Return the largest displacement from the screen's reference (0 without a screen); the last one is cached."""
        if screen is None:
            return 0.0
        if self._moved[0] is not theta or self._moved[1] is not screen:
            self._moved = (theta, screen, largest_displacement(theta.numpy(), screen.reference.numpy()))
        return self._moved[2]

    def _weights_of(self, log_rho: Tensor) -> tuple[np.ndarray, float]:
        """Return rho and osc(log rho), which are cached while the proximal step is the identity."""
        if self._weights[0] is not log_rho:
            values = log_rho.numpy()
            self._weights = (log_rho, np.exp(values).astype(self.dtype), oscillation(values))
        return self._weights[1], self._weights[2]


def _proximal_solution(fixed_point: FixedPoint, hyper: Hyper) -> ProximalSolution:
    log_rho, log_z, log_q = (
        torch.from_numpy(values) for values in (fixed_point.log_rho, fixed_point.log_z, fixed_point.log_q)
    )
    changes = torch.tensor(fixed_point.changes, dtype=torch.float64)
    return ProximalSolution(log_rho, log_z, log_q, len(changes), changes, hyper.delta, fixed_point.stopped)
