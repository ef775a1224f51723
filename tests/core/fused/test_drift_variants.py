"""Compiled drifts in tiles, and of the softmax neuron, equal the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from proxlearn.core import options, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.tanh_drift import TanhDrift
from proxlearn.core.fused.tanh_tiled import TILE, TiledTanhDrift
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.neuron import num_parameters
from proxlearn.core.neurons.softmax import SoftmaxNeuron
from proxlearn.core.problem import Problem
from proxlearn.core.samples import Samples
from tests.conftest import paper_cloud, randomness
from tests.core.fused.test_fused_step import RHO, WDBC, assert_equal_weights, dtypes


@dtypes
@pytest.mark.parametrize("drift", ["paper", "first_variation"])
@pytest.mark.parametrize("potential", ["paper", "first_variation"])
def test_tiles_make_no_difference_but_rounding(
    standardised: Problem,
    generator: torch.Generator,
    dtype: torch.dtype,
    drift: options.Drift,
    potential: options.Potential,
) -> None:
    """Some rows saturated and some not; more particles than one tile holds."""
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
    neuron = SoftmaxNeuron(classes, intercept)
    problem = Problem(neuron, Samples(X, torch.ones(n, dtype=torch.float64), labels)).to("cpu", dtype)
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
