"""The compiled step of a cloud that is divided among processes; the bits do not depend on the number of processes.

Every rank stores the whole cloud, N (p + 1) numbers, but responses, noise and kernel rows only for its part of the
particles. In a step, the ranks exchange the sums P^T rho and P^T 1 over the particles; the new locations and the
potential w; and, in each round of the proximal fixed point, one sum over the columns of the kernel. All other work of a
step is O(N p), or O(number of neighbours) for clouds with a neighbour list; every rank does this work for the whole
cloud.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.fused.drifts import Drift, make_drift
from proxlearn.core.fused.fixed_point import FixedPoint
from proxlearn.core.fused.fused_step import MOST_DENSE, FusedStep
from proxlearn.core.fused.thread_layer import row_blocks
from proxlearn.core.fused.tile_kernel import TileKernel
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples
from proxlearn.core.sharding import Shards, sum_of_blocks
from proxlearn.memory import free_memory
from proxlearn.portability import return_freed_memory

PER_THREAD = 4
"""Number of blocks per thread whose partial sums over the columns are in memory at once."""


class ShardedStep(FusedStep):
    """A ``FusedStep`` for the blocks of one rank, with the noise of the rank's particles only."""

    # A matrix would also have to be divided; tiles are as fast, and their rows are independent of each other.
    most_dense = 0

    def __init__(self, functional: Functional, hyper: Hyper, N: int, threads: int, shards: Shards) -> None:
        self.shards = shards
        super().__init__(functional, hyper, N, threads)
        self.tile_kernel = partial(ShardedTileKernel, shards)

    def _make_drift(self, functional: Functional) -> Drift:
        return ShardedDrift(functional, self.hyper, self.shards)

    def _tiled(self, cloud: PointCloud, theta: Tensor, w: np.ndarray, z0: Tensor, radius: float) -> FixedPoint:
        if self.N > MOST_DENSE:
            # A step of such a cloud takes seconds, so allocating the memory of the drift again costs little.
            self.drift.release()
            return_freed_memory()
        return super()._tiled(cloud, theta, w, z0, radius)

    def _free_memory(self) -> int:
        # All ranks on one machine see the same free memory, so each of them uses an equal share.
        return free_memory() // self.shards.exchange.local_size


class ShardedDrift:
    """The drift of a cloud, computed by blocks, because the bits of a matrix product depend on its number of rows."""

    def __init__(self, functional: Functional, hyper: Hyper, shards: Shards) -> None:
        self.shards = shards
        sizes = [rows.stop - rows.start for rows in shards.block_rows]
        self.parts = [make_drift(functional, hyper, shards.N, row_blocks(size), size) for size in sizes]

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        """Return Theta_k and w of all particles; ``noise`` contains the rows of this rank only."""
        shards = self.shards

        def copy(rows: slice) -> tuple[Tensor, np.ndarray]:
            # A block is copied, because the bits of a product may depend on the alignment of its factors.
            return theta[rows].clone(), rho[rows].copy()

        blocks = list(zip(self.parts, shards.block_rows, strict=True))
        r, s = shards.sum_blocks(part.forward(*copy(rows)) for part, rows in blocks)
        first, p = shards.rows.start, theta.shape[1]
        number = shards.rows.stop - first
        own_theta, own_w = np.empty((number, p), rho.dtype), np.empty(number, rho.dtype)
        for part, rows in blocks:
            place = slice(rows.start - first, rows.stop - first)
            new, own_w[place] = part.backward(*copy(rows), noise[place], r, s)
            own_theta[place] = new.numpy()
        return torch.from_numpy(shards.gather_rows(own_theta)), shards.gather_rows(own_w)

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        raise AssertionError("ShardedDrift moves the whole cloud: call it instead of forward and backward")

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        raise AssertionError("ShardedDrift moves the whole cloud: call it instead of forward and backward")

    def release(self) -> None:
        for part in self.parts:
            part.release()

    def set_hyper(self, hyper: Hyper) -> None:
        for part in self.parts:
            part.set_hyper(hyper)

    def set_samples(self, samples: Samples) -> None:
        for part in self.parts:
            part.set_samples(samples)


class ShardedTileKernel(TileKernel):
    """A ``TileKernel`` whose rows are divided among the ranks."""

    def __init__(
        self,
        shards: Shards,
        rows: np.ndarray,
        columns: np.ndarray,
        epsilon: float,
        cutoff: float = np.inf,
        memory: np.ndarray | None = None,
    ) -> None:
        self.shards = shards
        super().__init__(rows, columns, epsilon, cutoff, memory)

    def _own_groups(self, groups: int) -> tuple[int, int]:
        return self.shards.span(groups)

    def _count_all(self, entries: int) -> int:
        return self.shards.sum_integers(entries)

    def _parts_at_once(self, N: int) -> int:
        # The number is a power of two; it does not affect the order of the tree or the result.
        at_once = 1
        while at_once < min(PER_THREAD * numba.get_num_threads(), max(size for _, size in self.shards.nodes)):
            at_once *= 2
        return at_once

    def _sweep_rows(self) -> np.ndarray:
        shards, now, N = self.shards, self._round, len(self.order)

        def compute(first: int, number: int) -> np.ndarray:
            parts = self._parts[:number]
            self._sweep_blocks(first, shards.blocks, parts)
            return parts[:, :N]

        sums = [sum_of_blocks(node, len(self._parts), compute) for node in shards.nodes]
        rows = [now.u, now.q] if self._is_built else [now.u, now.q, now.alpha]
        first, last = shards.span(len(now.u))
        whole = shards.sum_columns(sums, [of_rows[first:last] for of_rows in rows], len(now.u))
        for of_rows, values in zip(rows, whole[1:], strict=True):
            of_rows.reshape(-1)[:] = values
        return whole[0]
