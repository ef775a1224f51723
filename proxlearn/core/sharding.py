"""The division of a cloud among processes (ranks), and sums that are identical for any number of ranks.

The particles are divided into blocks whose number depends only on N, and each rank has consecutive blocks. Every sum
over the cloud is the sum of its blocks in the order of a binary tree: block 0 + block 1, block 2 + block 3, then the
sums of these, and so on. A rank sums the complete subtrees among its blocks, and only these sums are exchanged. Two
ranks with equal halves send one partial sum each, and the result is the same for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

__all__ = ["Exchange", "Lone", "Shards", "shard_blocks", "undivided"]

MOST_BLOCKS = 256
"""Maximum number of blocks, and therefore of threads on all ranks together."""
LEAST_ROWS = 16
"""Minimum number of particles per block."""

MESSAGE_BYTES = 2**20
"""Maximum size in bytes of a message in ``gather_rows``; the buffers of this method take up a few times as much."""

Node = tuple[int, int]
"""A node of the tree: its first block, and its number of blocks, a power of two."""


def shard_blocks(N: int) -> int:
    """Return the number of blocks of N particles, a power of two; it is also the largest number of ranks."""
    blocks = 1
    while blocks < MOST_BLOCKS and 2 * blocks * LEAST_ROWS <= N:
        blocks *= 2
    return blocks


class Exchange(Protocol):
    """Protocol of the communication among the ranks, which must call the same operations in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, starting at 0."""

    @property
    def size(self) -> int:
        """The number of processes."""

    @property
    def local_size(self) -> int:
        """The number of processes on this machine, which share its memory."""

    def all_gather(self, part: np.ndarray) -> np.ndarray:
        """Return the arrays of all ranks, which have the same shape, stacked in the order of the ranks."""

    def all_to_all(self, parts: np.ndarray) -> np.ndarray:
        """Send parts[r] to rank r, and return the parts received from all ranks, in the order of the ranks."""

    def stop_request(self) -> int:
        """Return the number of the signal that has requested this rank to stop, or 0 if no stop was requested."""

    def interrupt(self, request: int) -> None:
        """End the step on all ranks after a stop request on one of them; this function does not return."""


class Lone:
    """The exchange of a single process, which returns the arrays of this process."""

    rank, size, local_size = 0, 1, 1

    def all_gather(self, part: np.ndarray) -> np.ndarray:
        return part[None]

    def all_to_all(self, parts: np.ndarray) -> np.ndarray:
        return parts

    def stop_request(self) -> int:
        return 0

    def interrupt(self, request: int) -> None:
        raise AssertionError("a single process has no stop requests")


def undivided(N: int) -> Shards:
    """Return the division of N particles into blocks that all belong to this process."""
    return Shards(N, Lone())


class Shards:
    """The division of N particles into blocks, with the blocks of this rank and methods for sums over all blocks."""

    def __init__(self, N: int, exchange: Exchange) -> None:
        self.N, self.exchange, self.blocks = N, exchange, shard_blocks(N)
        assert exchange.size <= self.blocks, "there are more ranks than blocks of particles"
        self.first, self.last = self._block_span(exchange.rank)
        """First block of this rank, and the block after its last one."""
        self._nodes = [self.nodes_of(rank) for rank in range(exchange.size)]

    def _block_span(self, rank: int) -> tuple[int, int]:
        return self.blocks * rank // self.exchange.size, self.blocks * (rank + 1) // self.exchange.size

    def span(self, count: int, rank: int | None = None) -> tuple[int, int]:
        """Return the index of a rank's first item, and one more than the index of its last item.

        ``count`` items, such as particles, are divided among the blocks. ``rank=None`` selects this rank.
        """
        first, last = self._block_span(self.exchange.rank if rank is None else rank)
        return count * first // self.blocks, count * last // self.blocks

    @property
    def rows(self) -> slice:
        """Slice of the particles of this rank."""
        return slice(*self.span(self.N))

    @property
    def block_rows(self) -> list[slice]:
        """Slices of the particles, one per block of this rank."""
        edges = [self.N * block // self.blocks for block in range(self.first, self.last + 1)]
        return [slice(*edge) for edge in pairwise(edges)]

    def nodes_of(self, rank: int) -> list[Node]:
        """Return the largest nodes of the tree that contain only blocks of one rank, in order."""
        first, last = self._block_span(rank)
        nodes = []
        while first < last:
            size = first & -first or self.blocks
            while first + size > last:
                size //= 2
            nodes.append((first, size))
            first += size
        return nodes

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the tree that belong to this rank."""
        return self._nodes[self.exchange.rank]

    def total(self, sums: dict[Node, np.ndarray]) -> np.ndarray:
        """Return the sum over the whole tree, given the sums of the nodes of all ranks."""
        return _sum_of_node((0, self.blocks), sums)

    def sum_blocks(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """Return the sum over all blocks of the cloud; ``parts`` yields the terms of this rank's blocks, in order."""
        stored: list[np.ndarray] = []
        for k, part in enumerate(parts):
            # All parts are in one array, because small arrays between the temporary arrays of the blocks would prevent
            # the reuse of their memory.
            stored = stored or list(np.empty((self.last - self.first, *part.shape), part.dtype))
            stored[k][...] = part
        leaves = {(block, 1): part for block, part in zip(range(self.first, self.last), stored, strict=True)}
        own = np.stack([_sum_of_node(node, leaves) for node in self.nodes])
        gathered = self.exchange.all_gather(self._padded(own))
        return self.total(self._by_node(gathered))

    def sum_columns(self, sums: Sequence[np.ndarray], rows: Sequence[np.ndarray], groups: int) -> list[np.ndarray]:
        """Return a list: the sum of the column vectors of all ranks, followed by the row vectors of all ranks.

        ``sums`` contains one column vector per node of this rank; all have the same length. Each rank sums a range of
        the columns, so that the number of bytes that it sends does not grow with the number of ranks. ``rows`` contains
        this rank's parts of the row vectors, shape (groups of this rank, rows per group); all ranks together have
        ``groups`` groups. These parts are sent together with the sums of the columns.
        """
        size, length = self.exchange.size, len(sums[0])
        width = -(-length // size)
        sent = np.zeros((size, max(map(len, self._nodes)), width))
        for k, vector in enumerate(sums):
            padded = np.zeros(size * width)
            padded[:length] = vector
            sent[:, k] = padded.reshape(size, width)
        columns = self.total(self._by_node(self.exchange.all_to_all(sent)))
        lengths = [rows[0].shape[1] * int(np.diff(self.span(groups, rank))[0]) for rank in range(size)]
        longest = max(lengths)
        message = np.zeros(1 + width + len(rows) * longest)
        message[0] = self.exchange.stop_request()
        message[1 : 1 + width] = columns
        for k, vector in enumerate(rows):
            message[1 + width + k * longest :][: vector.size] = vector.reshape(-1)
        received = self.exchange.all_gather(message)
        request = int(received[:, 0].max())
        if request:
            self.exchange.interrupt(request)
        whole = [received[:, 1 : 1 + width].reshape(-1)[:length]]
        for k in range(len(rows)):
            parts = received[:, 1 + width + k * longest :]
            whole.append(np.concatenate([part[:number] for part, number in zip(parts, lengths, strict=True)]))
        return whole

    def gather_rows(self, own: np.ndarray) -> np.ndarray:
        """Return the rows of all particles, given the rows of this rank's particles."""
        spans = [self.span(self.N, rank) for rank in range(self.exchange.size)]
        longest = max(last - first for first, last in spans)
        whole = np.empty((self.N, *own.shape[1:]), own.dtype)
        at_once = max(1, MESSAGE_BYTES // max(1, whole[0].nbytes))
        for start in range(0, longest, at_once):
            part = own[start : start + at_once]
            message = np.zeros((min(at_once, longest - start), *own.shape[1:]), own.dtype)
            message[: len(part)] = part
            for received, (first, last) in zip(self.exchange.all_gather(message), spans, strict=True):
                place = whole[min(first + start, last) : min(first + start + len(message), last)]
                place[...] = received[: len(place)]
        return whole

    def sum_integers(self, value: int) -> int:
        """Return the sum of an integer over the ranks."""
        return int(self.exchange.all_gather(np.array([value])).sum())

    def _padded(self, own: np.ndarray) -> np.ndarray:
        """Return the sums of this rank's nodes, padded with zeros to the largest number of nodes of any rank."""
        padded = np.zeros((max(map(len, self._nodes)), *own.shape[1:]), own.dtype)
        padded[: len(own)] = own
        return padded

    def _by_node(self, gathered: np.ndarray) -> dict[Node, np.ndarray]:
        ranks = zip(self._nodes, gathered, strict=True)
        return {node: part for nodes, parts in ranks for node, part in zip(nodes, parts[: len(nodes)], strict=True)}


def _sum_of_node(node: Node, sums: dict[Node, np.ndarray]) -> np.ndarray:
    """Return the sum of a node of the tree, either from ``sums`` or as the sum of the node's two halves."""
    if node in sums:
        return sums[node]
    first, size = node[0], node[1] // 2
    total: np.ndarray = _sum_of_node((first, size), sums) + _sum_of_node((first + size, size), sums)
    return total


def add_in_place(parts: np.ndarray) -> np.ndarray:
    """Return the sum of 2^k blocks in the order of the tree; ``parts`` is overwritten."""
    step = 1
    while step < len(parts):
        for k in range(0, len(parts), 2 * step):
            parts[k] += parts[k + step]
        step *= 2
    first: np.ndarray = parts[0]
    return first


def sum_of_blocks(node: Node, at_once: int, compute: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Return the sum of a node.

    ``compute(first, number)`` returns the terms of the ``number`` blocks from ``first`` on; it is called for at most
    ``at_once`` blocks at a time.
    """
    first, size = node
    if size <= at_once:
        return add_in_place(compute(first, size)).copy()
    left = sum_of_blocks((first, size // 2), at_once, compute)
    left += sum_of_blocks((first + size // 2, size // 2), at_once, compute)
    return left
