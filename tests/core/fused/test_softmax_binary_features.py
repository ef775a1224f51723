"""The softmax drift by look-ups equals the matrix products up to rounding, and is used if it is faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core import options
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.drift_base import FusedDrift
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.sign_sum_tables import INPUTS, LANES, PATTERNS, TABLES, look_up, patterns
from proxlearn.core.fused.softmax_binary_features import LEAST, BinaryFeaturesDrift, signs
from proxlearn.core.fused.softmax_drift import SoftmaxDrift
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.samples import Samples
from proxlearn.training.stepper import Stepper
from tests.conftest import paper_cloud

HYPER = Hyper(beta=0.5, h=1.0, epsilon=10.0, delta=1e-3, L=50)
VALUES = {"signs": (-1.0, 1.0), "bits": (0.0, 1.0), "greys": (0.3, 0.7), "far": (-40.0, 3.0)}
precisions = st.sampled_from([torch.float32, torch.float64])


def black_and_white(
    seed: int,
    n: int = 150,
    n_x: int = 140,
    classes: int = 4,
    intercept: bool = False,
    dtype: torch.dtype = torch.float64,
    values: str = "signs",
) -> Risk:
    """Return features of which a third are set; some columns are constant, and the others have two values."""
    generator = torch.Generator().manual_seed(seed)
    above = torch.rand(n, n_x, generator=generator) < torch.rand(n_x, generator=generator).round(decimals=1)
    if values == "own":
        lo, hi = torch.randn(2, n_x, generator=generator, dtype=torch.float64).to(dtype)
    else:
        lo, hi = torch.tensor(VALUES[values], dtype=dtype)[:, None].expand(2, n_x)
    labels = torch.randint(classes, (n,), generator=generator)
    neuron = Softmax(classes, intercept)
    return Risk.from_samples(neuron, Samples(torch.where(above, hi, lo), neuron.targets(labels).to(dtype), labels))


def some_cloud(problem: Risk, N: int, seed: int) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """Return theta, rho and noise."""
    X, generator = problem.samples.X, torch.Generator().manual_seed(seed)
    p = sum(problem.neuron.coordinates(X.shape[1]).values())
    theta, noise = torch.randn(2, N, p, generator=generator, dtype=torch.float64).to(X.dtype)
    rho = torch.softmax(torch.randn(N, generator=generator, dtype=torch.float64), 0).to(X.dtype)
    return theta / X.shape[1] ** 0.5, rho.numpy(), noise


def tolerance(problem: Risk, theta: torch.Tensor) -> float:
    """Return the tolerance for the rounding of a logit and its effect on a gradient."""
    X = problem.samples.X
    largest = float(X.abs().max())
    return 40 * torch.finfo(X.dtype).eps * (1 + largest) * (1 + largest * float(theta.abs().sum(1).max()))


def assert_the_same(
    actual: tuple[torch.Tensor, np.ndarray], expected: tuple[torch.Tensor, np.ndarray], atol: float
) -> None:
    torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=atol)
    np.testing.assert_allclose(actual[1], expected[1], rtol=0, atol=atol)


@given(
    seed=st.integers(0, 10**6), K=st.integers(1, 200), M=st.integers(1, 70), dtype=st.sampled_from([np.float32, float])
)
@settings(max_examples=30, deadline=None)
def test_looked_up_sums_of_whole_numbers_are_exact(seed: int, K: int, M: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    above, inputs = rng.random((M, K)) < 0.4, rng.integers(-1000, 1000, (K, LANES))
    codes = patterns(above)
    rows = np.zeros((len(codes) * INPUTS, LANES), dtype)
    rows[:K] = inputs
    to = np.empty(M * LANES, dtype)
    look_up(rows.reshape(-1), codes, np.empty((TABLES, PATTERNS * LANES), dtype), to)
    np.testing.assert_array_equal(to.reshape(M, LANES), np.where(above, 1, -1) @ inputs)


@given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 40),
    n=st.integers(1, 200),
    n_x=st.integers(1, 140),
    classes=st.integers(2, 6),
    intercept=st.booleans(),
    dtype=precisions,
    values=st.sampled_from([*VALUES, "own"]),
    drift=st.sampled_from(["paper", "first_variation"]),
    potential=st.sampled_from(["paper", "first_variation"]),
    blocks=st.integers(1, 3),
)
@settings(max_examples=30, deadline=None)
def test_equals_the_matrix_products_to_rounding(
    seed: int,
    N: int,
    n: int,
    n_x: int,
    classes: int,
    intercept: bool,
    dtype: torch.dtype,
    values: str,
    drift: options.Drift,
    potential: options.Potential,
    blocks: int,
) -> None:
    problem = black_and_white(seed, n, n_x, classes, intercept, dtype, values)
    hyper = replace(HYPER, drift=drift, prox_potential=potential)
    cloud = some_cloud(problem, N, seed)
    actual, expected = (kind(problem, hyper, N, blocks)(*cloud) for kind in (BinaryFeaturesDrift, SoftmaxDrift))
    assert_the_same(actual, expected, tolerance(problem, cloud[0]))


@given(seed=st.integers(0, 10**6), N=st.integers(2, 40), dtype=precisions)
@settings(max_examples=20, deadline=None)
def test_permuted_particles_permute_the_result(seed: int, N: int, dtype: torch.dtype) -> None:
    problem = black_and_white(seed, dtype=dtype)
    theta, rho, noise = some_cloud(problem, N, seed)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    drift = BinaryFeaturesDrift(problem, HYPER, N, 1)
    new, w = drift(theta, rho, noise)
    permuted = drift(theta[order], rho[order.numpy()], noise[order])
    assert_the_same(permuted, (new[order], w[order.numpy()]), tolerance(problem, theta))


@given(seed=st.integers(0, 10**6), N=st.integers(1, 40), dtype=precisions, blocks=st.integers(2, 4))
@settings(max_examples=20, deadline=None)
def test_blocks_agree_with_one_block_and_repeat_their_bits(seed: int, N: int, dtype: torch.dtype, blocks: int) -> None:
    problem = black_and_white(seed, intercept=True, dtype=dtype)
    cloud = some_cloud(problem, N, seed)
    drift = BinaryFeaturesDrift(problem, HYPER, N, blocks)
    first, again = drift(*cloud), drift(*cloud)
    assert torch.equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert_the_same(first, BinaryFeaturesDrift(problem, HYPER, N, 1)(*cloud), tolerance(problem, cloud[0]))


def test_other_samples_take_the_place_of_the_first() -> None:
    problem, other = black_and_white(0), black_and_white(1, values="greys")
    cloud = some_cloud(problem, 20, 0)
    drift = BinaryFeaturesDrift(problem, HYPER, 20, 1)
    drift(*cloud)
    drift.set_samples(other.samples)
    actual, expected = drift(*cloud), BinaryFeaturesDrift(other, HYPER, 20, 1)(*cloud)
    assert torch.equal(actual[0], expected[0])
    assert np.array_equal(actual[1], expected[1])


@given(seed=st.integers(0, 10**6), dtype=precisions, values=st.sampled_from([*VALUES, "own"]))
@settings(max_examples=30, deadline=None)
def test_signs_say_what_the_features_are_and_a_third_value_is_seen(seed: int, dtype: torch.dtype, values: str) -> None:
    X = black_and_white(seed, n=50, n_x=30, dtype=dtype, values=values).samples.X.numpy()
    actual = signs(X)
    assert actual is not None
    mid, half, above = actual
    np.testing.assert_allclose(mid + np.where(above, half, -half), X, rtol=0, atol=2 * np.spacing(np.abs(X).max()))
    if values == "signs":
        np.testing.assert_array_equal(mid + np.where(above, half, -half), X)
    X[seed % 50, 3], X[(seed + 1) % 50, 3], X[(seed + 2) % 50, 3] = -50, 50, 7
    assert signs(X) is None


def chosen(problem: Risk, N: int) -> type[FusedDrift]:
    return type(FusedStep(problem, HYPER, N, threads=1).drift)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("intercept", [False, True])
def test_chosen_where_it_is_right_and_pays(dtype: torch.dtype, intercept: bool) -> None:
    problem = black_and_white(0, LEAST, LEAST, intercept=intercept, dtype=dtype, values="own")
    assert chosen(problem, LANES) is BinaryFeaturesDrift
    assert chosen(problem, LANES - 1) is SoftmaxDrift
    assert chosen(black_and_white(0, LEAST - 1, LEAST), LANES) is SoftmaxDrift
    assert chosen(black_and_white(0, LEAST, LEAST - 1), LANES) is SoftmaxDrift
    problem.samples.X[:3, 5] = torch.tensor([-9.0, 0.5, 9.0])
    assert chosen(problem, LANES) is SoftmaxDrift


def test_never_chosen_for_batches() -> None:
    """The values of a first batch say nothing about the next, and a resumed run would draw another first batch."""
    problem = black_and_white(0, 2 * LEAST, LEAST)
    cloud = paper_cloud(problem, LANES, torch.Generator().manual_seed(0))
    kinds = []
    for batch_size in (None, LEAST):
        advance = Stepper(problem, replace(HYPER, batch_size=batch_size), "fused", 1, torch.Generator().manual_seed(0))
        advance(cloud)
        kinds.append(type(advance._step.fused_step.drift))  # type: ignore[union-attr]
    assert kinds == [BinaryFeaturesDrift, SoftmaxDrift]
