"""What fused drifts share: the cotangents of the way back, the proximal step's w, and a matrix that multiplies fast."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.recursion import Hyper


def cotangent(hyper: Hyper, r: np.ndarray, s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """c and d of G(i,m) = c_m + rho_i d_m, as in energy.field."""
    n = len(y)
    if hyper.drift == "paper":
        return (r - 2 * y) / n, s / n
    return (r - y) * (2 / n), np.zeros_like(s)


def potential(hyper: Hyper, inner_c: np.ndarray, u: np.ndarray | None) -> np.ndarray:
    """w from P c, which is v + u for the paper's cotangent and v + 2 u for the first variation's; u where they
    differ."""
    if u is None:
        return inner_c
    total: np.ndarray = inner_c + u if hyper.prox_potential == "first_variation" else inner_c - u
    return total


def padded(X: Tensor) -> Tensor:
    """X with columns of zeros up to a multiple of 16.

    The matrix product is tuned for whole registers: N x 384 times 384 x 9 takes three times as long as times 384 x 16.
    """
    columns = -(-X.shape[1] // 16) * 16
    return torch.nn.functional.pad(X, (0, columns - X.shape[1])).contiguous()
