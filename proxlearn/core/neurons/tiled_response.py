"""Responses that are evaluated in tiles of particles, because P (N x n) is too large to be stored."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from proxlearn.core.kernels.tiled import SHARE, fits_in_memory
from proxlearn.core.neurons.neuron import Neuron, Response
from proxlearn.core.samples import Samples
from proxlearn.memory import free_memory

__all__ = ["TiledResponse", "respond"]

WHOLE_ENTRIES = 2**26
"""Maximum number of outputs, over all particles and samples, that are evaluated as one matrix."""
TILE_ENTRIES = 2**22
"""Number of outputs per tile, enough to occupy all cores or a GPU."""
COPIES = 4
"""Number of matrices (of the size of the outputs) that a response and its operations use at the same time."""


def respond(neuron: Neuron, theta: Tensor, samples: Samples) -> Response:
    """Return the response of the neuron, or a TiledResponse if the outputs would take up too much memory."""
    entries = len(theta) * _outputs_per_particle(neuron, samples)
    if entries <= WHOLE_ENTRIES and fits_in_memory(COPIES * theta.itemsize * entries, theta.device):
        return neuron.respond(theta, samples)
    return TiledResponse(neuron, theta, samples)


class TiledResponse(Response):
    """The response of any neuron in tiles of particles.

    The responses of the first tiles are stored until they use a share of the free memory; the other responses are
    evaluated again for every operation. This choice does not affect the results.
    """

    def __init__(self, neuron: Neuron, theta: Tensor, samples: Samples, kept_bytes: int | None = None) -> None:
        """Prepare the tiles; stored tiles take up at most ``kept_bytes``, by default a share of the free memory."""
        self.neuron, self.theta, self.samples = neuron, theta, samples
        free = free_memory(theta.device)
        self._available = free // SHARE if kept_bytes is None else kept_bytes
        entries = min(TILE_ENTRIES, free // (SHARE * COPIES * theta.itemsize))
        self._size = max(1, entries // _outputs_per_particle(neuron, samples))
        self._kept: dict[int, Response] = {}

    def over_particles(self, weights: Tensor) -> Tensor:
        total: Tensor | None = None
        for rows, response in self._tiles():
            part = response.over_particles(weights[rows])
            total = part if total is None else total.add_(part)
        assert total is not None, "a cloud has at least one particle"
        return total

    def over_samples(self, vectors: Tensor) -> Tensor:
        products = vectors.new_empty(len(self.theta), vectors.shape[1])
        for rows, response in self._tiles():
            products[rows] = response.over_samples(vectors)
        return products

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        gradient = torch.empty_like(self.theta)
        for rows, response in self._tiles():
            gradient[rows] = response.pull_back(c, None if rho is None else rho[rows], d)
        return gradient

    def _tiles(self) -> Iterator[tuple[slice, Response]]:
        for first in range(0, len(self.theta), self._size):
            rows = slice(first, first + self._size)
            response = self._kept.get(first) or self.neuron.respond(self.theta[rows], self.samples)
            size = response.stored_bytes()
            if first not in self._kept and size is not None and size <= self._available:
                self._kept[first] = response
                self._available -= size
            yield rows, response


def _outputs_per_particle(neuron: Neuron, samples: Samples) -> int:
    return max(1, len(samples) * neuron.width)
