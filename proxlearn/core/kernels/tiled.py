"""Kernels that are divided into tiles of rows, for clouds whose N x N matrix may not fit in memory.

Every tile is built from the locations of the particles. If the free memory is large enough, all tiles are stored at
their first use; otherwise, each tile is discarded after every use and built again for the next one.

The results of all tiles are written into one tensor. A list of small tensors, allocated between the tiles, could
prevent the CPU's allocator from reusing the memory of a tile; 20000 particles would then take up 3 GB.

The size of a tile depends only on the shape of the matrix and on the device, unless the memory is too small even for
one tile. Apart from this exception, the free memory does not affect the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from proxlearn.core.kernels.kernel import LogSums, MassTransport, RangedKernel, centred, squared_distances
from proxlearn.memory import free_memory

__all__ = ["TiledAbsorbedKernel", "TiledLogKernel", "Tiling", "fits_in_memory", "make_tiling"]

SHARE = 4
"""Matrices are stored if they take up at most 1/SHARE of the free memory."""
ALWAYS_FITS = 2**26
"""Number of bytes that are assumed to fit in memory without a check of the free memory."""
CPU_ENTRIES, GPU_ENTRIES = 2**20, 2**24
"""Number of entries per tile: few enough for the processor's cache, and enough to occupy a GPU."""
TEMPORARIES = 8
"""Number of matrices of the size of a tile, in float64, that an operation on a tile uses at the same time."""


@dataclass(frozen=True)
class Tiling:
    """The division of a matrix into tiles of whole rows."""

    num_rows: int
    size: int
    """Number of rows per tile."""
    keep: bool
    """Whether a tile is stored at its first use; otherwise, it is built again for every use."""

    def __iter__(self) -> Iterator[slice]:
        return (slice(first, first + self.size) for first in range(0, self.num_rows, self.size))


def fits_in_memory(num_bytes: int, device: torch.device) -> bool:
    """Return whether ``num_bytes`` bytes of matrices may be stored in the memory of a device."""
    return num_bytes <= ALWAYS_FITS or num_bytes <= free_memory(device) // SHARE


def make_tiling(num_rows: int, num_columns: int, device: torch.device, kept_bytes: int) -> Tiling:
    """Return the tiling of a matrix; all tiles are stored if ``kept_bytes``, their total size, fits in memory."""
    free = free_memory(device)
    entries = CPU_ENTRIES if device.type == "cpu" else GPU_ENTRIES
    entries = min(entries, free // (SHARE * TEMPORARIES * 8))
    return Tiling(num_rows, max(1, entries // max(1, num_columns)), kept_bytes <= free // SHARE)


class TiledLogKernel:
    """A ``LogKernel`` in tiles of rows; the sum of a column extends over all tiles and is accumulated in float64."""

    def __init__(self, rows: Tensor, columns: Tensor, epsilon: float, tiling: Tiling) -> None:
        self.rows, self.columns, self.epsilon, self.tiling = rows, columns, epsilon, tiling
        self._nearest: Tensor | None = None
        self._kept: list[Tensor] = []

    @property
    def row_shift(self) -> Tensor:
        if self._nearest is None:
            for _ in self._tiles():
                pass
        assert self._nearest is not None
        return self._nearest / (-2 * self.epsilon)

    def log_apply(self, log_z: Tensor) -> Tensor:
        values, centre = centred(log_z, self.rows.dtype)
        sums = self.rows.new_empty(len(self.rows))
        for part, tile in self._tiles():
            sums[part] = torch.logsumexp(tile + values, dim=1)
        return sums.to(log_z.dtype) + centre

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        values, centre = centred(log_q, self.rows.dtype)
        sums = LogSums(len(self.columns), self.rows.device)
        for part, tile in self._tiles():
            sums.add(torch.logsumexp(tile + values[part, None], dim=0))
        return sums.log().to(log_q.dtype) + centre

    def log_transport(self, log_rho: Tensor, log_z: Tensor) -> Tensor:
        transport = MassTransport(log_rho, log_z)
        for part, tile in self._tiles():
            transport.add(tile, part)
        return transport.log().to(log_rho.dtype)

    def _tiles(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the row range and the entries of each tile of log Gamma'; the caller must not change stored tiles."""
        if self._kept:
            yield from zip(self.tiling, self._kept, strict=True)
            return
        # The smallest cost of each row is found during the first use of the tiles, so that C is not computed twice.
        is_first = self._nearest is None
        nearest = self.rows.new_empty(len(self.rows)) if self._nearest is None else self._nearest
        for part in self.tiling:
            C = squared_distances(self.rows[part], self.columns)
            if is_first:
                nearest[part] = C.amin(dim=1)
            tile = C.neg_().add_(nearest[part, None]).div_(2 * self.epsilon)
            if self.tiling.keep:
                self._kept.append(tile)
            yield part, tile
        self._nearest = nearest


RANGE = {torch.float32: 16.0, torch.float64: 128.0}
"""Largest difference, by precision, between a potential and the potential that a tile has absorbed."""


@dataclass
class Absorption:
    """The potential that the tiles of one product have absorbed, and the value of that product at the absorption."""

    potential: Tensor
    """log z or log q at the time of the absorption."""
    result: Tensor
    """log(Gamma' z) or log(Gamma'^T q') at that time."""
    distance: float
    """Upper limit on max|log z - potential| or max|log q - potential|."""
    tiles: list[Tensor]
    """The tiles, if they are stored."""


class TiledAbsorbedKernel(TiledLogKernel, RangedKernel):
    """A tiled kernel that uses matrix products instead of logsumexp while the potentials change little.

    Once log(Gamma' z*) is known for one z*, the entries Gamma'(i,j) z*_j / (Gamma' z*)_i of a row are at most 1 and sum
    to 1, and their product with z / z* is (Gamma' z)_i / (Gamma' z*)_i. With max|log z - log z*| <= R, that product
    lies between exp(-R) and exp(R): it cannot overflow, and the entries that underflow contribute less than N exp(2 R)
    times the smallest number of the type. Gamma'^T q' has separate tiles of the same kind. If R would exceed ``RANGE``,
    or is unknown (delta=0), the operation is computed in the log domain. The limit on the changes comes from
    ``limit_change``, so no operation waits for the device.
    """

    def __init__(self, rows: Tensor, columns: Tensor, epsilon: float, tiling: Tiling) -> None:
        # The tiles of logarithms are used only once or twice, so the memory is reserved for the tiles of the products.
        super().__init__(rows, columns, epsilon, Tiling(tiling.num_rows, tiling.size, keep=False))
        self._keep_products = tiling.keep
        self._range = RANGE[rows.dtype]
        self._change = float("inf")
        self._last: dict[int, tuple[Tensor, Tensor]] = {}
        self._absorbed: dict[int, Absorption] = {}

    def limit_change(self, change: float) -> None:
        self._change = change

    def log_apply(self, log_z: Tensor) -> Tensor:
        absorption = self._absorption(1)
        result = super().log_apply(log_z) if absorption is None else self._product(absorption, log_z)
        self._last[1] = (log_z, result)
        return result

    def log_apply_transpose(self, log_q: Tensor) -> Tensor:
        absorption = self._absorption(0)
        result = (
            super().log_apply_transpose(log_q) if absorption is None else self._product_transpose(absorption, log_q)
        )
        self._last[0] = (log_q, result)
        return result

    def _absorption(self, direction: int) -> Absorption | None:
        """Return the absorbed potential for the next product, or None if the log domain must be used instead.

        ``direction`` is the dimension that the product sums over: 1 for Gamma' z, 0 for Gamma'^T q'.
        """
        absorption = self._absorbed.pop(direction, None)
        # A comparison with NaN is false, so a cloud that is not finite stays in the log domain.
        if direction not in self._last or not self._change <= self._range:
            return None
        if absorption is None or absorption.distance + self._change > self._range:
            absorption = Absorption(*self._last[direction], distance=0.0, tiles=[])
        absorption.distance += self._change
        self._absorbed[direction] = absorption
        return absorption

    def _product(self, absorption: Absorption, log_z: Tensor) -> Tensor:
        z = torch.exp(log_z - absorption.potential).to(self.rows.dtype)
        sums = torch.empty_like(z)
        for part, tile in self._product_tiles(absorption, 1):
            sums[part] = tile @ z
        return sums.to(log_z.dtype).log() + absorption.result

    def _product_transpose(self, absorption: Absorption, log_q: Tensor) -> Tensor:
        q = torch.exp(log_q - absorption.potential).to(self.rows.dtype)
        total = torch.zeros(len(self.columns), dtype=torch.float64, device=q.device)
        for part, tile in self._product_tiles(absorption, 0):
            total += q[part] @ tile
        return total.log().to(log_q.dtype) + absorption.result

    def _product_tiles(self, absorption: Absorption, direction: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield the row range and the entries of each tile; their sums over ``direction`` were 1 at the absorption."""
        if absorption.tiles:
            yield from zip(self.tiling, absorption.tiles, strict=True)
            return
        potential, centre = centred(absorption.potential, self.rows.dtype)
        result = (absorption.result - centre).to(self.rows.dtype)
        for part, tile in self._tiles():
            if direction == 1:
                tile.add_(potential).sub_(result[part, None]).exp_()
            else:
                tile.add_(potential[part, None]).sub_(result).exp_()
            if self._keep_products:
                absorption.tiles.append(tile)
            yield part, tile
