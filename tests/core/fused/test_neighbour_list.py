"""Neighbour lists, compared with a search over all pairs.

Compiled drifts in tiles, and of the softmax neuron, equal the reference.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core import options, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused import absorbed_kernel
from proxlearn.core.fused.drifts import has_fused_drift, make_drift
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.neighbour_list import build_list, widest_empty_radius
from proxlearn.core.fused.one_step_list import MOST_COORDINATES, list_between
from proxlearn.core.fused.tanh_drift import TanhDrift
from proxlearn.core.fused.tanh_one_feature import OneFeatureTanhDrift
from proxlearn.core.fused.tanh_tiled import TILE, TiledTanhDrift
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import find_loss
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.neuron import num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.samples import Samples
from tests.conftest import paper_cloud, randomness
from tests.core.fused.test_fused_step import RHO, WDBC, assert_equal_weights, dtypes


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


@dtypes
@pytest.mark.parametrize("drift", ["paper", "first_variation"])
@pytest.mark.parametrize("potential", ["paper", "first_variation"])
def test_tiles_make_no_difference_but_rounding(
    standardised: Risk,
    generator: torch.Generator,
    dtype: torch.dtype,
    drift: options.Drift,
    potential: options.Potential,
) -> None:
    """Some rows are saturated and some are not; there are more particles than one tile holds."""
    N = TILE + 77
    hyper = replace(WDBC, drift=drift, prox_potential=potential)
    problem = standardised.to("cpu", dtype)
    cloud = paper_cloud(standardised, N, generator)
    # Every second particle's bias saturates it.
    cloud.theta[::2, 1] += 500
    cloud = cloud.to("cpu", dtype)
    noise, _ = randomness(cloud, generator)
    rho = (cloud.rho * torch.rand(N, generator=generator, dtype=torch.float64).to(dtype)).numpy()
    whole, tiled = (drift_of(problem, hyper, N, 2) for drift_of in (TanhDrift, TiledTanhDrift))
    theta, w = whole(cloud.theta, rho, noise)
    theta_tiled, w_tiled = tiled(cloud.theta, rho, noise)
    assert 0 < int(tiled.active.sum()) < N
    scale = float((theta - cloud.theta).abs().max())
    torch.testing.assert_close(theta_tiled, theta, rtol=RHO[dtype], atol=RHO[dtype] * scale)
    torch.testing.assert_close(torch.from_numpy(w_tiled), torch.from_numpy(w), rtol=10 * RHO[dtype], atol=RHO[dtype])


@dtypes
@pytest.mark.parametrize("drift", ["paper", "first_variation"])
@pytest.mark.parametrize("potential", ["paper", "first_variation"])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_feature_makes_no_difference_but_rounding(
    generator: torch.Generator,
    dtype: torch.dtype,
    drift: options.Drift,
    potential: options.Potential,
    weighted: bool,
) -> None:
    N, n = 45, 30
    hyper = replace(WDBC, drift=drift, prox_potential=potential)
    X, y = torch.randn(n, 1, generator=generator).to(dtype), torch.randn(n, generator=generator).to(dtype)
    weights = torch.rand(n, generator=generator).to(dtype) + 0.1 if weighted else None
    problem = Risk.from_samples(Perceptron(), Samples(X, y, weights=weights))
    theta, rho = torch.randn(N, 3, generator=generator).to(dtype), torch.rand(N, generator=generator).to(dtype).numpy()
    # Every second particle's bias saturates it.
    theta[::2, 1] += 500
    noise = torch.randn(N, 3, generator=generator).to(dtype)
    general, special = TanhDrift(problem, hyper, N, 2), make_drift(problem, hyper, N, 2)
    assert isinstance(special, OneFeatureTanhDrift)
    expected, w = general(theta, rho, noise)
    moved, w_special = special(theta, rho, noise)
    torch.testing.assert_close(moved, expected, rtol=RHO[dtype], atol=RHO[dtype])
    torch.testing.assert_close(torch.from_numpy(w_special), torch.from_numpy(w), rtol=10 * RHO[dtype], atol=RHO[dtype])


@dtypes
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("drift", ["paper", "first_variation"])
@pytest.mark.parametrize("potential", ["paper", "first_variation"])
def test_the_fused_softmax_neuron_equals_the_reference(
    generator: torch.Generator,
    dtype: torch.dtype,
    intercept: bool,
    drift: options.Drift,
    potential: options.Potential,
) -> None:
    N, n, n_x, classes = 23, 40, 5, 4
    X = torch.randn(n, n_x, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (n,), generator=generator)
    neuron = Softmax(classes, intercept)
    problem = Risk.from_samples(neuron, Samples(X, torch.ones(n, dtype=torch.float64), labels)).to("cpu", dtype)
    p = num_parameters(neuron, n_x)
    log_rho = torch.randn(N, generator=generator, dtype=torch.float64) - 3
    cloud = PointCloud(torch.randn(N, p, generator=generator, dtype=torch.float64), log_rho).to("cpu", dtype)
    hyper = Hyper(
        beta=0.5, h=1e-2, epsilon=10.0, delta=1e-3, L=50, noise_scale=0.01, drift=drift, prox_potential=potential
    )
    noise, z0 = randomness(cloud, generator)
    actual, _ = FusedStep(problem, hyper, N, threads=2)(cloud, noise, z0)
    expected, _ = step.step(problem, cloud, hyper, noise, z0)
    assert_equal_weights(actual, expected)
    torch.testing.assert_close(actual.theta, expected.theta, rtol=RHO[dtype], atol=RHO[dtype])


def weighted_risk(loss: str, outputs: int, activation: str, confinement: float, weighted: bool, seed: int) -> Risk:
    """Return the risk of random data in float64 for a loss and a neuron with that many outputs."""
    generator = torch.Generator().manual_seed(seed)
    n, neuron = 31, Perceptron(ACTIVATIONS[activation], outputs)
    labels = torch.randint(0, max(2, outputs), (n,), generator=generator)
    y = torch.randn(outputs, n, generator=generator, dtype=torch.float64) if loss == "huber" else neuron.targets(labels)
    samples = Samples(torch.randn(n, 4, generator=generator, dtype=torch.float64), y if outputs > 1 else y.flatten())
    if weighted:
        samples = samples.with_weights(torch.rand(n, generator=generator, dtype=torch.float64))
    return Risk.from_samples(neuron, samples, find_loss(loss), confinement)


@dtypes
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([("quadratic", 1), ("logistic", 1), ("huber", 1), ("quadratic", 3), ("cross_entropy", 3)]),
    st.sampled_from(["tanh", "relu", "cos"]),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_the_drift_of_every_loss_equals_autodiff_of_the_objective(
    dtype: torch.dtype, case: tuple[str, int], activation: str, confinement: float, weighted: bool, seed: int
) -> None:
    """Neurons with compiled passes and with plain torch are tested, with sample weights and confinement."""
    loss, outputs = case
    exact = weighted_risk(loss, outputs, activation, confinement, weighted, seed)
    assert has_fused_drift(exact) == (activation == "tanh")
    generator, N = torch.Generator().manual_seed(seed), 19
    theta = torch.randn(N, outputs + 5, generator=generator, dtype=torch.float64)
    rho = torch.rand(N, generator=generator, dtype=torch.float64) + 0.1
    hyper = Hyper(beta=1.0, h=1.0, epsilon=1.0, drift="first_variation", prox_potential="first_variation")
    drift = make_drift(exact.to("cpu", dtype), hyper, N, 1)
    moved, w = drift(theta.to(dtype), rho.to(dtype).numpy(), torch.zeros(N, outputs + 5, dtype=dtype))
    expected = Functional.potentials(exact, theta, rho, hyper)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    scale = float(1 + expected.gradient.abs().max() + theta.abs().max())
    torch.testing.assert_close(moved.double(), theta - expected.gradient, rtol=0, atol=tolerance * scale)
    actual_w = torch.from_numpy(w).double()
    # A constant in w does not change the step.
    difference = (actual_w - actual_w.mean()) - (expected.w - expected.w.mean())
    assert float(difference.abs().max()) <= tolerance * float(1 + expected.w.abs().max())
