"""What changes along a run: falling factors, and the length that a relative epsilon is counted in."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core.options import Schedule
from proxlearn.core.schedules import LOWEST, neighbour_quantile, schedule_factor


@given(st.sampled_from(["constant", "cosine", "power"]), st.integers(1, 5000))
@settings(max_examples=30, deadline=None)
def test_factors_start_at_one_and_never_rise_nor_vanish(kind: Schedule, horizon: int) -> None:
    steps = sorted({0, 1, horizon // 3, horizon // 2, horizon, 2 * horizon, 10 * horizon})
    factors = [schedule_factor(kind, step, horizon) for step in steps]
    assert factors[0] == 1.0
    assert all(b <= a for a, b in itertools.pairwise(factors))
    assert factors[-1] > 0
    ends = {"constant": 1.0, "cosine": LOWEST, "power": 0.1}
    assert schedule_factor(kind, horizon, horizon) == pytest.approx(ends[kind])


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.floats(0, 0.99))
@settings(max_examples=40, deadline=None)
def test_the_length_scales_with_the_cloud_and_does_not_move_with_it(seed: int, factor: float, q: float) -> None:
    theta = torch.randn(50, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    length = neighbour_quantile(theta, q)
    assert neighbour_quantile(factor * theta + 7, q) == pytest.approx(factor**2 * length, rel=1e-6)


def test_the_length_is_that_of_nearest_neighbours_and_twins_are_none() -> None:
    grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    assert neighbour_quantile(0.5 * grid, 0.5) == pytest.approx(0.25)
    assert neighbour_quantile(torch.cat((grid, grid)), 0.5) == pytest.approx(1.0)
    assert neighbour_quantile(torch.zeros(5, 2), 0.5) is None
