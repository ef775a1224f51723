"""Neighbour lists, compared with a search over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core.fused import absorbed_kernel
from proxlearn.core.fused.neighbour_list import build_list, widest_empty_radius
from proxlearn.core.fused.one_step_list import MOST_COORDINATES, list_between


def distances(cloud: np.ndarray) -> np.ndarray:
    wide = cloud.astype(np.float64)
    distances = np.sqrt(((wide[:, None] - wide[None]) ** 2).sum(-1))
    np.fill_diagonal(distances, np.inf)
    return distances


def make_cloud(seed: int, N: int, p: int, kind: str, dtype: type) -> np.ndarray:
    rng = np.random.default_rng(seed)
    cloud = rng.normal(size=(N, p)) * rng.exponential(size=p) * 5
    if kind == "clustered":
        cloud = cloud[rng.integers(0, max(N // 8, 1), N)] + 0.1 * rng.normal(size=(N, p))
    if kind == "duplicated":
        cloud = cloud[rng.integers(0, max(N // 2, 1), N)]
    if kind == "flat":
        cloud[:, 1:] = 3.0
    return cloud.astype(dtype)


clouds = st.tuples(
    st.integers(0, 10**6),
    st.integers(2, 120),
    st.integers(1, 11),
    st.sampled_from(["spread", "clustered", "duplicated", "flat"]),
    st.sampled_from([np.float32, np.float64]),
)


@given(clouds, st.floats(1e-3, 20))
@settings(max_examples=60, deadline=None)
def test_a_list_holds_every_pair_within_the_radius_and_none_far_beyond(
    shape: tuple[int, int, int, str, type], radius: float
) -> None:
    cloud = make_cloud(*shape)
    neighbours = build_list(cloud, radius, most=10**9)
    assert neighbours is not None
    listed = np.zeros((len(cloud), len(cloud)), bool)
    for i in range(len(cloud)):
        columns = neighbours.columns[neighbours.starts[i] : neighbours.starts[i + 1]]
        assert len(set(columns.tolist())) == len(columns)
        listed[i, columns] = True
    exact = distances(cloud)
    assert np.all(listed[exact <= radius])
    assert not np.any(listed[exact > radius * (1 + 1e-4)])
    assert not np.any(listed.diagonal())


@given(clouds, st.floats(1e-3, 20), st.floats(0, 10))
@settings(max_examples=60, deadline=None)
def test_a_list_between_two_clouds_holds_every_pair_within_the_radius_and_none_far_beyond(
    shape: tuple[int, int, int, str, type], radius: float, move: float
) -> None:
    seed, N, p, kind, dtype = shape
    p = 1 + p % MOST_COORDINATES
    columns = make_cloud(seed, N, p, kind, dtype)
    rows = (columns + move * np.random.default_rng(seed + 1).normal(size=(N, p))).astype(dtype)
    neighbours = list_between(rows, columns, radius, most=3 * N**2)
    assert neighbours is not None
    listed = np.zeros((N, N), bool)
    for i in range(N):
        entries = neighbours.columns[neighbours.starts[i] : neighbours.starts[i + 1]]
        assert len(set(entries.tolist())) == len(entries)
        listed[i, entries] = True
    exact = np.sqrt(np.square(rows[:, None].astype(np.float64) - columns[None]).sum(axis=-1))
    np.fill_diagonal(exact, np.inf)
    assert np.all(listed[exact <= radius])
    assert not np.any(listed[exact > radius * (1 + 1e-4)])


def test_a_list_that_would_be_too_long_is_not_made() -> None:
    cloud = make_cloud(0, 50, 3, "spread", np.float64)
    assert build_list(cloud, 1e3, most=50 * 49 - 1) is None
    assert build_list(cloud, 1e3, most=50 * 49) is not None


@pytest.mark.parametrize("N", [30, 2500])
def test_the_widest_empty_radius_is_empty_and_no_smaller_than_asked(N: int) -> None:
    cloud = make_cloud(3, N, 6, "spread", np.float64)
    closest = distances(cloud).min()
    radius = widest_empty_radius(cloud, 0.5 * closest)
    assert 0.5 * closest <= radius < closest
    neighbours = build_list(cloud, radius * 0.999, most=10**9)
    assert neighbours is not None
    assert neighbours.empty


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_kernels_have_the_entries_and_the_scale_of_their_definition(dtype: type) -> None:
    """K(i,j) = exp(log_scale_i + log Gamma(i,j) + gamma_j), for all pairs or for those of a list within the cut-off."""
    rng, N, epsilon = np.random.default_rng(0), 200, 0.1
    rows = rng.normal(size=(N, 3)).astype(dtype)
    columns = (rows + 0.05 * rng.normal(size=(N, 3))).astype(dtype)
    gamma, log_scale = rng.normal(size=N).astype(dtype), np.full(N, np.nan)
    C = np.square(rows[:, None].astype(np.float64) - columns[None]).sum(-1)
    expected = -C / (2 * epsilon) + gamma
    dense = absorbed_kernel.dense_kernel(rows, columns, epsilon, np.empty((N, N), dtype), 1.0)
    absorbed_kernel.build_dense(dense, gamma, log_scale)
    assert dense.counts.sum() == np.count_nonzero(C < 1)
    large = dense.K > 1e-20
    tolerance = 400 * np.finfo(dtype).eps
    np.testing.assert_allclose((np.log(dense.K) - log_scale[:, None])[large], expected[large], atol=tolerance)
    log_scale[:] = np.nan
    sparse = absorbed_kernel.sparse_kernel(rows, columns, epsilon, build_list(rows, 1.5, 10**6), 1.3)
    absorbed_kernel.build_short(sparse, gamma, log_scale)
    for i in range(N):
        kept = slice(sparse.starts[i], sparse.ends[i])
        assert sorted(sparse.kept[kept]) == [j for j in np.flatnonzero(C[i] <= sparse.limit) if j != i]
        actual = np.log(sparse.K[kept]) - log_scale[i]
        np.testing.assert_allclose(actual, expected[i, sparse.kept[kept]], atol=tolerance)
