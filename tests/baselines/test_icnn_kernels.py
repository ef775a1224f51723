"""The compiled kernels: matrix inverses and Adam; the other kernels are tested through the network."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.baselines.icnn_kernels import LANES, adam_step, invert_matrices


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 2 * LANES + 1), st.floats(-3, 3), st.floats(-6, 0))
@settings(deadline=None)
def test_sweeping_inverts(seed: int, D: int, count: int, factor: float, least: float) -> None:
    draw = np.random.default_rng(seed)
    Q = np.linalg.qr(draw.standard_normal((count, D, D)))[0]
    values = 10 ** draw.uniform(least, 0, (count, 1, D))
    H = (Q * values) @ Q.transpose(0, 2, 1)
    expected = factor * np.eye(D)
    inverses = H.copy()
    invert_matrices(inverses, factor)
    assert (inverses == inverses.transpose(0, 2, 1)).all()
    # The condition is at most 1e6, and rounding 1e-16.
    np.testing.assert_allclose(inverses @ H, np.broadcast_to(expected, H.shape), atol=1e-7)


def test_adam_is_that_of_torch(generator: torch.Generator) -> None:
    ours = torch.randn(50, generator=generator, dtype=torch.float64)
    theirs = ours.clone()
    optimiser = torch.optim.Adam([theirs], lr=0.03)
    first, second = np.zeros(50), np.zeros(50)
    for step in range(1, 30):
        theirs.grad = torch.randn(50, generator=generator, dtype=torch.float64) * 10.0 ** (step % 7 - 3)
        adam_step(ours.numpy(), theirs.grad.numpy(), first, second, 0.03, step)
        optimiser.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
