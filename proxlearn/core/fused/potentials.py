"""What every fused drift makes of P^T rho and P^T 1: the cotangents of its way back, and the proximal step's w."""

from __future__ import annotations

import numpy as np

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
