"""Compiled drifts in tiles, and of the softmax neuron, equal the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core import options, step
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.drifts import has_fused_drift, make_drift
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.tanh_drift import TanhDrift
from proxlearn.core.fused.tanh_one_feature import OneFeatureTanhDrift
from proxlearn.core.fused.tanh_tiled import TILE, TiledTanhDrift
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import find_loss
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.neuron import num_parameters
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import SoftmaxNeuron
from proxlearn.core.samples import Samples
from tests.conftest import paper_cloud, randomness
from tests.core.fused.test_fused_step import RHO, WDBC, assert_equal_weights, dtypes


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
    neuron = SoftmaxNeuron(classes, intercept)
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
