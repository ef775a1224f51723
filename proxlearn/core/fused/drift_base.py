"""The base class of the fused drifts, and functions for the potential w, for padded features and for products."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples
from proxlearn.portability import one_thread


class FusedDrift(ABC):
    """The drift of a cloud for a fixed number of samples and one precision; every step reuses its memory."""

    dtype: np.dtype
    hyper: Hyper
    h: np.floating
    diffusion: np.floating

    def __init__(self, problem: Risk, hyper: Hyper, blocks: int) -> None:
        """Prepare the drift with ``blocks`` blocks of particles; a subclass then allocates the memory of its passes."""
        self.risk = problem
        self.dtype = problem.samples.X.numpy().dtype
        self.blocks, self.n = blocks, len(problem.samples)
        self._prepare(problem.samples)
        self.set_hyper(hyper)

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        """Return Theta_k and the potential w of the proximal step."""
        r, s = self.forward(theta, rho)
        return self.backward(theta, rho, noise, r, s)

    @abstractmethod
    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        """Evaluate the neurons; return r = P^T rho and s = P^T 1, shape (2, n) or (2, C, n).

        The particles may be a part of a cloud; the sums of the parts must then be added before ``backward``.
        """

    @abstractmethod
    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        """Return Theta_k and w for the particles of the previous call of ``forward``.

        ``r`` and ``s`` are the sums over the whole cloud.
        """

    def release(self) -> None:  # noqa: B027 - drifts with little memory have nothing to free
        """Free the memory of the passes, if it is large; the next ``forward`` allocates it again.

        This does not change the results. It saves memory during a proximal step that takes much longer than the drift.
        """

    def empty_sums(self) -> np.ndarray:
        """Return new memory for the contribution of each block to P^T rho and P^T 1.

        It is allocated at every call, because a cloud that is divided among processes has many drifts, one per block.
        """
        return np.empty((self.blocks, 2, self.n), self.dtype)

    @abstractmethod
    def _prepare(self, samples: Samples) -> None:
        """Store the arrays that the passes need for the samples."""

    def set_samples(self, samples: Samples) -> None:
        """Replace the samples with the same number of other samples."""
        self.risk = self.risk.with_samples(samples, self.risk.batch)
        self._prepare(samples)

    def set_hyper(self, hyper: Hyper) -> None:
        """Replace h, beta and epsilon; all other hyperparameters must be the same as before."""
        self.hyper = hyper
        self.h, self.diffusion = self.dtype.type(hyper.h), self.dtype.type(hyper.diffusion)

    def cotangent(self, r: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return c and d of G(i,m) = c_m + rho_i d_m, as in ``Risk.potentials``; r and s have the shape of y."""
        y = self.risk.samples.y.numpy()
        if self.hyper.drift == "paper":
            return self._weighted((r - 2 * y) / y.shape[-1]), self._weighted(s / y.shape[-1])
        # With several threads, torch.softmax and torch.sigmoid round the numbers at the ends of the threads' parts
        # differently.
        with one_thread():
            c = self.risk.loss.cotangent(torch.from_numpy(r), self.risk.samples.y).numpy()
        return self._weighted(c), np.zeros_like(s)

    def _weighted(self, values: np.ndarray) -> np.ndarray:
        """Return the values per sample (n, or C x n) multiplied by the sample weights."""
        weights = self.risk.samples.weights
        return values if weights is None else values * weights.numpy()


def potential(hyper: Hyper, inner_c: np.ndarray, u: np.ndarray | None) -> np.ndarray:
    """Return the potential w of the proximal step, given ``inner_c`` = P c.

    P c is v + u for drift="paper" and v + 2 u for drift="first_variation". If prox_potential has the other value, ``u``
    must be given, and w is computed by adding or subtracting it; otherwise, ``u`` must be None, and w is P c.
    """
    if u is None:
        return inner_c
    total: np.ndarray = inner_c + u if hyper.prox_potential == "first_variation" else inner_c - u
    return total


def pad_columns(X: Tensor) -> Tensor:
    """Return X padded with columns of zeros to a multiple of 16 columns.

    The matrix product is tuned for whole registers: N x 384 times 384 x 9 takes three times as long as N x 384 times
    384 x 16.
    """
    columns = -(-X.shape[1] // 16) * 16
    return torch.nn.functional.pad(X, (0, columns - X.shape[1])).contiguous()


def product(A: Tensor, B: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the product A B, stored in ``out`` if given; its bits do not depend on the number of threads.

    If the result is small and its sums are long, the library may divide each sum among the threads. Such products are
    computed by one thread. Which shapes are affected depends on the processor, so each shape is tried once.
    """
    threads = torch.get_num_threads()
    if threads == 1 or _same_bits(_layout(A), _layout(B), A.dtype, threads):
        return torch.mm(A, B, out=out)
    with one_thread():
        return torch.mm(A, B, out=out)


def row_products(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return the inner product of each row with a vector, computed by ``product``."""
    inner: np.ndarray = product(torch.from_numpy(rows), torch.from_numpy(vector)[:, None])[:, 0].numpy()
    return inner


Layout = tuple[torch.Size, tuple[int, ...], int]
"""Shape, strides, and offset from the start of a register."""


def _layout(matrix: Tensor) -> Layout:
    return matrix.shape, matrix.stride(), int(matrix.storage_offset()) % 16


@lru_cache(maxsize=2**12)
def _same_bits(left: Layout, right: Layout, dtype: torch.dtype, threads: int) -> bool:
    """Return whether two random factors have the same product, bit for bit, with one thread and with all threads.

    ``threads`` is the number of threads that torch uses now; it is an argument because it belongs to the cache key.
    """
    generator = torch.Generator().manual_seed(0)

    def factor(shape: torch.Size, strides: tuple[int, ...], offset: int) -> Tensor:
        size = offset + 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
        return torch.randn(max(size, 1), dtype=dtype, generator=generator).as_strided(shape, strides, offset)

    A, B = factor(*left), factor(*right)
    together = torch.mm(A, B)
    with one_thread():
        return torch.equal(torch.mm(A, B), together)


@lru_cache(maxsize=2)
def with_ones(samples: Samples) -> tuple[Tensor, Tensor]:
    """Return the matrix [1 X] in two forms for the matrix products: transposed, and padded with columns of zeros.

    The result is cached, so that the drifts of all blocks of a cloud use the same arrays.
    """
    X1t = torch.cat((samples.X.new_ones(len(samples), 1), samples.X), dim=1).T.contiguous()
    return X1t, pad_columns(X1t.T)
