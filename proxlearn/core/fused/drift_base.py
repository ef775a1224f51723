"""The base of the fused drifts: hyperparameters, cotangents of the backward pass, the potential w, padded features."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.hyper import Hyper
from proxlearn.core.samples import Samples


class FusedDrift(ABC):
    """The drift of a cloud, with memory that every step reuses, for a fixed number of samples and one precision."""

    dtype: np.dtype
    hyper: Hyper
    h: np.floating
    diffusion: np.floating

    @abstractmethod
    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        """Return Theta_k and the proximal step's potential w."""

    @abstractmethod
    def set_samples(self, samples: Samples) -> None:
        """Continue with other samples, as many as before."""

    def set_hyper(self, hyper: Hyper) -> None:
        """Continue with other values of h, beta and epsilon; the readings (drift, prox_potential) stay."""
        self.hyper = hyper
        self.h, self.diffusion = self.dtype.type(hyper.h), self.dtype.type(hyper.diffusion)


def cotangent(hyper: Hyper, r: np.ndarray, s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return c and d of G(i,m) = c_m + rho_i d_m, as in ``risk.potentials``; r, s and y are all n, or outputs x n."""
    n = y.shape[-1]
    if hyper.drift == "paper":
        return (r - 2 * y) / n, s / n
    return (r - y) * (2 / n), np.zeros_like(s)


def potential(hyper: Hyper, inner_c: np.ndarray, u: np.ndarray | None) -> np.ndarray:
    """Return w from P c, which is v + u for the paper's cotangent and v + 2 u for the first variation's cotangent.

    ``u`` is given where the readings of drift and prox_potential differ.
    """
    if u is None:
        return inner_c
    total: np.ndarray = inner_c + u if hyper.prox_potential == "first_variation" else inner_c - u
    return total


def pad_columns(X: Tensor) -> Tensor:
    """Return X with columns of zeros up to a multiple of 16.

    The matrix product is tuned for whole registers: N x 384 times 384 x 9 takes three times as long as with 384 x 16.
    """
    columns = -(-X.shape[1] // 16) * 16
    return torch.nn.functional.pad(X, (0, columns - X.shape[1])).contiguous()


def with_ones(samples: Samples) -> tuple[np.ndarray, Tensor, Tensor]:
    """Return y, and [1 X] in the two forms for the matrix products: transposed, and padded."""
    X1t = torch.cat((samples.X.new_ones(len(samples), 1), samples.X), dim=1).T.contiguous()
    return samples.y.numpy(), X1t, pad_columns(X1t.T)
