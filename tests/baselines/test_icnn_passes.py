"""The compiled passes: inverses are inverses. What else they do is tested with the network they serve."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.baselines.icnn_passes import LANES, invert


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 2 * LANES + 1), st.floats(-3, 3), st.floats(-6, 0))
@settings(deadline=None)
def test_sweeping_inverts(seed: int, D: int, count: int, factor: float, least: float) -> None:
    draw = np.random.default_rng(seed)
    Q = np.linalg.qr(draw.standard_normal((count, D, D)))[0]
    values = 10 ** draw.uniform(least, 0, (count, 1, D))
    H = (Q * values) @ Q.transpose(0, 2, 1)
    wanted = factor * np.eye(D)
    found = H.copy()
    invert(found, factor)
    assert (found == found.transpose(0, 2, 1)).all()
    # The condition is at most 1e6, and rounding 1e-16.
    np.testing.assert_allclose(found @ H, np.broadcast_to(wanted, H.shape), atol=1e-7)
