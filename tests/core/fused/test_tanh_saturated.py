"""Skipping rows that do not change affects the cost of a step, but not its result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core import options
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.saturated_rows import NEAR
from proxlearn.core.fused.tanh_drift import TanhDrift
from proxlearn.core.fused.tanh_saturated import SATURATED, SaturatedTanhDrift, saturates
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from tests.conftest import paper_cloud, randomness
from tests.core.fused.test_vector_math import apply_tanh

WDBC = Hyper(beta=0.05, h=1e-3, epsilon=1.0, delta=1e-3, L=300)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def some_problem(seed: int, n: int, n_x: int, scale: float, dtype: torch.dtype) -> Risk:
    """Return columns whose scales differ by orders of magnitude, with one sign or both."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, n_x, generator=generator, dtype=torch.float64)
    X = scale * 10 ** (2 * torch.rand(n_x, generator=generator, dtype=torch.float64) - 2) * X
    X = X.abs() if seed % 2 else X
    y = torch.randn(n, generator=generator, dtype=torch.float64).sign()
    return Risk.from_samples(Perceptron(), Samples(X, y)).to("cpu", dtype)


@given(
    seed=st.integers(0, 10**6),
    N=st.integers(1, 23),
    n=st.integers(1, 40),
    n_x=st.integers(1, 11),
    scale=st.sampled_from([1.0, 100.0, 1e4]),
    stride=st.sampled_from([1e-3, 0.1, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    blocks=st.sampled_from([1, 3]),
)
@settings(max_examples=80, deadline=None)
def test_the_bits_are_those_of_a_drift_without_a_past(
    seed: int, N: int, n: int, n_x: int, scale: float, stride: float, dtype: torch.dtype, blocks: int
) -> None:
    """The same clouds pass through a drift with earlier lists and through a new one, which computes every row."""
    problem = some_problem(seed, n, n_x, scale, dtype)
    generator = torch.Generator().manual_seed(seed)
    hyper = replace(WDBC, noise_scale=stride)
    theta = torch.randn(N, n_x + 2, generator=generator, dtype=dtype)
    rho = torch.rand(N, generator=generator, dtype=dtype).numpy()
    reused = SaturatedTanhDrift(problem, hyper, N, blocks)
    for step in range(6):
        if step == 4:
            # A drift that has freed its memory allocates it again and forgets its lists.
            reused.release()
            assert not reused.signs.size
        noise = torch.randn(theta.shape, generator=generator, dtype=dtype)
        after, w = reused(theta, rho, noise)
        again, w_again = SaturatedTanhDrift(problem, hyper, N, blocks)(theta, rho, noise)
        assert torch.equal(after, again)
        assert np.array_equal(w, w_again)
        theta = after


@dtypes
@pytest.mark.parametrize("size", [0.1, 5.0, 30.0])
def test_the_bits_are_the_same_after_many_steps(
    wdbc: Risk, generator: torch.Generator, dtype: torch.dtype, size: float
) -> None:
    """Lists fill, stay valid and are rebuilt, on WDBC's samples, from few saturated neurons to nearly all."""
    N, problem = 60, wdbc.to("cpu", dtype)
    theta = size * torch.randn(N, 32, generator=generator, dtype=dtype)
    # Planes through the data, as in a trained cloud.
    theta[::2, 1] -= (wdbc.samples.X.to(dtype) @ theta[::2, 2:].T).median(0).values
    rho = torch.rand(N, generator=generator, dtype=dtype).numpy()
    reused, lasted = SaturatedTanhDrift(problem, WDBC, N, 2), 0
    for _ in range(40):
        noise = torch.randn(theta.shape, generator=generator, dtype=dtype)
        before = reused.squared_radius.copy()
        after, w = reused(theta, rho, noise)
        lasted += int(((reused.squared_radius == before) & (reused.pair_count > 0)).sum())
        again, w_again = SaturatedTanhDrift(problem, WDBC, N, 2)(theta, rho, noise)
        assert torch.equal(after, again)
        assert np.array_equal(w, w_again)
        theta = after
    # Rows with unsaturated samples whose list stayed valid.
    assert lasted > 0 or size < 1


@dtypes
@pytest.mark.parametrize("drift", ["paper", "first_variation"])
@pytest.mark.parametrize("potential", ["paper", "first_variation"])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_the_drift_is_that_of_the_products(
    wdbc: Risk,
    generator: torch.Generator,
    dtype: torch.dtype,
    drift: options.Drift,
    potential: options.Potential,
    size: float,
) -> None:
    """Few, some or most rows are saturated."""
    N, problem = 103, wdbc.to("cpu", dtype)
    cloud = paper_cloud(wdbc, N, generator)
    cloud = replace(cloud, theta=size * cloud.theta).to("cpu", dtype)
    noise, _ = randomness(cloud, generator)
    rho = torch.rand(N, generator=generator, dtype=torch.float64).to(dtype).numpy() / N
    hyper = replace(WDBC, drift=drift, prox_potential=potential)
    actual, w = SaturatedTanhDrift(problem, hyper, N, 2)(cloud.theta, rho, noise)
    expected, w_expected = TanhDrift(problem, hyper, N, 2)(cloud.theta, rho, noise)
    unit = torch.finfo(dtype).eps
    # A gradient of up to 1e3 per sample, and a pre-activation of 1e3 |w| whose rounding affects the slope.
    torch.testing.assert_close(actual, expected, rtol=100 * unit, atol=2e4 * unit * max(size, 1))
    torch.testing.assert_close(torch.from_numpy(w), torch.from_numpy(w_expected), rtol=100 * unit, atol=2e4 * unit)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tanh_is_exactly_one_from_where_rows_are_called_saturated(dtype: type) -> None:
    limit = SATURATED[np.dtype(dtype)]
    x = np.concatenate((np.linspace(limit, limit + 1, 200_001), np.geomspace(limit, 1e30, 100_001))).astype(dtype)
    x = x[x >= dtype(limit)]
    out = np.empty_like(x)
    for sign in (1, -1):
        apply_tanh(dtype(sign) * x, out)
        assert np.all(out == sign)


def test_a_spread_cloud_computes_a_part_of_its_rows(wdbc: Risk, generator: torch.Generator) -> None:
    """As at k = 1e5 of the paper's run, the list of a row is valid for many steps."""
    N, problem = 400, wdbc.to("cpu", torch.float32)
    theta = 63 * torch.randn(N, 32, generator=generator)
    rho = np.full(N, 2.3e-8, np.float32)
    drift = SaturatedTanhDrift(problem, WDBC, N, 1)
    computed = []
    for _ in range(40):
        before = drift.squared_radius.copy()
        theta, _ = drift(theta, rho, torch.randn(theta.shape, generator=generator))
        computed.append(float(np.mean((drift.squared_radius != before) | (drift.squared_radius < 0))))
    assert computed[0] == 1
    assert np.mean(computed[1:]) < 0.25


@dtypes
def test_rows_that_are_not_finite_are_computed_and_stay_so(
    wdbc: Risk, generator: torch.Generator, dtype: torch.dtype
) -> None:
    problem = wdbc.to("cpu", dtype)
    theta = torch.randn(8, 32, generator=generator, dtype=dtype)
    rho, noise = np.full(8, 0.1, problem.samples.X.numpy().dtype), torch.zeros(8, 32, dtype=dtype)
    drift = SaturatedTanhDrift(problem, WDBC, 8, 1)
    drift(theta, rho, noise)
    for bad in (float("nan"), float("inf"), 1e30):
        theta[3, 5] = bad
        after, _ = drift(theta, rho, noise)
        assert bool(torch.isfinite(after[3]).all()) == (bad == 1e30)
    again, _ = drift(theta, rho, noise)
    fresh, _ = SaturatedTanhDrift(problem, WDBC, 8, 1)(theta, rho, noise)
    assert torch.equal(again, fresh)


@dtypes
def test_what_is_no_number_spreads_as_it_does_through_products(
    wdbc: Risk, generator: torch.Generator, dtype: torch.dtype
) -> None:
    """An infinite weight belongs to a feature that is 0 for a few samples, so few that the row is not dense."""
    problem = wdbc.to("cpu", dtype)
    zeros = (problem.samples.X == 0).sum(0)
    feature = int(zeros.argmax())
    assert 0 < zeros[feature] <= NEAR
    theta = torch.randn(8, 32, generator=generator, dtype=dtype)
    rho, noise = np.full(8, 0.1, problem.samples.X.numpy().dtype), torch.zeros(8, 32, dtype=dtype)
    theta[3, 2 + feature] = float("inf")
    for drift in (SaturatedTanhDrift(problem, WDBC, 8, 1), TanhDrift(problem, WDBC, 8, 1)):
        after, potentials = drift(theta, rho, noise)
        assert not np.isfinite(potentials).any()
        assert not bool(torch.isfinite(after).all(1).any())


def test_raw_features_are_recognised_by_the_data_alone(wdbc: Risk, standardised: Risk) -> None:
    assert saturates(wdbc)
    assert not saturates(standardised)
    assert not saturates(Risk.from_samples(wdbc.neuron, wdbc.samples, batch=True))
    cloud = PointCloud(torch.zeros(5, 32), torch.zeros(5))
    for problem, kind in ((wdbc, SaturatedTanhDrift), (standardised, TanhDrift)):
        fused_step = FusedStep(problem.to("cpu", torch.float32), WDBC, len(cloud.theta), threads=1)
        assert isinstance(fused_step.drift, kind)
