"""The entropy of a cloud: Gaussians in 1 to 32 dimensions, exact laws, and the limits of the estimates."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.core.entropy import MOST_QUERIES, entropy, entropy_from_weights, entropy_terms, queried

BIAS = {1: 0.0, 2: -0.02, 5: -0.07, 10: 0.11, 16: 0.69, 32: 3.22}
"""Mean error in nats with N = 1000 draws of a standard normal law, by dimension; the docstring of ``entropy`` states
the last one."""


def gaussian(N: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(N, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian_entropy(d: int) -> float:
    return 0.5 * d * math.log(2 * math.pi * math.e)


@pytest.mark.parametrize("d", BIAS)
def test_gaussians_have_their_entropy_up_to_the_stated_bias(d: int) -> None:
    """The mean over 50 clouds is known to two standard errors, which are below .05 nats in every dimension."""
    errors = torch.stack([entropy(gaussian(1000, d, seed)) for seed in range(50)]) - gaussian_entropy(d)
    assert abs(float(errors.mean()) - BIAS[d]) < 0.05
    # The standard deviation of -log p is sqrt(d / 2) per particle, plus the noise of the distance.
    assert float(errors.std()) < 1.5 * math.sqrt((d / 2 + 0.4) / 1000)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_bias_vanishes_with_the_number_of_particles(d: int) -> None:
    """With 50000 particles, three standard errors over the sample of 1000 queries remain."""
    error = float(entropy(gaussian(50_000, d)) - gaussian_entropy(d))
    assert abs(error) < 3 * math.sqrt((d / 2 + 0.4) / MOST_QUERIES)


def test_the_third_neighbour_has_less_variance_in_one_dimension_and_more_bias_in_32() -> None:
    one = [torch.stack([entropy(gaussian(300, 1, seed), k) for seed in range(80)]) for k in (1, 3)]
    assert float(one[1].var()) < 0.7 * float(one[0].var())
    many = [torch.stack([entropy(gaussian(1000, 32, seed), k) for seed in range(10)]) for k in (1, 3)]
    biases = [float(values.mean()) - gaussian_entropy(32) for values in many]
    assert biases[1] / biases[0] == pytest.approx(1.25, abs=0.05)


def test_the_error_in_the_papers_initial_box_is_the_one_that_the_docstring_states() -> None:
    """Uniform on 2 sides of 0.2 and 30 of 2: 9.5 nats, and 12.6 if the coordinates were not divided by their spread."""
    sides = torch.tensor([0.2, 0.2, *[2.0] * 30], dtype=torch.float64)
    uniform = torch.rand(1000, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float(entropy(uniform * sides) - sides.log().sum()) == pytest.approx(9.5, abs=0.2)
    distances = torch.cdist(uniform * sides, uniform * sides).fill_diagonal_(math.inf)
    radii = distances.kthvalue(3, dim=1).values
    psi = torch.digamma(torch.tensor([1000.0, 3.0], dtype=torch.float64))
    log_ball = 16 * math.log(math.pi) - math.lgamma(17)
    plain = psi[0] - psi[1] + log_ball + 32 * radii.log().mean()
    assert float(plain - sides.log().sum()) == pytest.approx(12.6, abs=0.2)


@given(st.integers(0, 1000), st.lists(st.floats(-6, 6), min_size=1, max_size=8), st.integers(1, 5))
def test_scaling_a_coordinate_adds_its_logarithm_and_a_shift_nothing(seed: int, scales: list[float], k: int) -> None:
    theta = gaussian(40, len(scales), seed)
    moved = torch.tensor(scales, dtype=torch.float64).exp() * theta + 3
    assert float(entropy(moved, k)) == pytest.approx(float(entropy(theta, k)) + sum(scales), abs=1e-6)


@given(st.integers(0, 1000))
def test_the_order_of_the_particles_does_not_matter(seed: int) -> None:
    theta = gaussian(60, 3, seed)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    assert float(entropy(theta[order])) == pytest.approx(float(entropy(theta)), abs=1e-12)


def test_the_terms_are_those_of_all_pairs_of_distances() -> None:
    theta, k = gaussian(200, 4) * torch.tensor([1.0, 10.0, 0.1, 3.0]), 3
    deviations = theta.std(dim=0, correction=0)
    scaled = theta / deviations
    radii = (scaled[:, None] - scaled).norm(dim=2).sort(dim=1).values[:, k]
    ball = math.pi**2 / 2
    expected = sum(1 / i for i in range(k, 200)) + math.log(ball) + 4 * radii.log() + deviations.log().sum()
    assert torch.allclose(entropy_terms(theta, k), expected, atol=1e-12)


def test_a_large_cloud_is_searched_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    theta = gaussian(700, 3).float()
    whole = entropy_terms(theta)
    for at_once in (2, 64, 699):
        monkeypatch.setattr("proxlearn.core.entropy.AT_ONCE", at_once)
        torch.testing.assert_close(entropy_terms(theta), whole, rtol=1e-12, atol=0)


def test_far_from_the_origin_a_float32_cloud_keeps_its_digits() -> None:
    theta = gaussian(500, 3).float() * 1e-2
    assert float(entropy(theta + 100)) == pytest.approx(float(entropy(theta)), abs=0.02)


def test_large_clouds_query_a_sample_against_all_particles() -> None:
    theta = gaussian(5 * MOST_QUERIES + 7, 2)
    theta = theta / theta.std(dim=0, correction=0)
    terms = entropy_terms(theta)
    assert len(terms) == MOST_QUERIES == len(set(queried(len(theta)).tolist()))
    nearest = (theta[queried(len(theta))[17]] - theta).norm(dim=1).sort().values[3]
    psi = torch.digamma(torch.tensor([len(theta), 3.0], dtype=torch.float64))
    assert float(terms[17]) == pytest.approx(float(psi[0] - psi[1] + math.log(math.pi) + 2 * nearest.log()), abs=1e-9)


def test_clouds_without_a_density_or_with_too_few_particles_have_no_finite_entropy() -> None:
    theta = gaussian(50, 2)
    assert entropy(torch.cat([theta, theta[:1].expand(3, 2)])) == -math.inf, "four particles in one place"
    assert entropy(torch.cat([theta, torch.ones(50, 1)], dim=1)) == -math.inf, "all particles in a plane"
    assert math.isfinite(entropy(torch.cat([theta, theta[:1]])))
    assert entropy(theta[:3]).isnan()
    assert entropy(theta[:4]).isfinite()
    assert entropy(torch.cat([theta, torch.tensor([[math.inf, 0.0]])])).isnan()


@pytest.mark.parametrize("d, epsilon", [(1, 0.01), (2, 0.01), (3, 0.01), (5, 0.1)])
def test_weights_that_are_the_density_give_the_entropy(d: int, epsilon: float) -> None:
    theta = gaussian(1000, d)
    log_density = -0.5 * theta.square().sum(dim=1)
    # The kernel convolves the density: int p^2 becomes that of variance 1 + epsilon / 2 per coordinate.
    bias = 0.5 * d * math.log1p(epsilon / 2)
    found = entropy_from_weights(theta, log_density, epsilon)
    assert float(found) == pytest.approx(gaussian_entropy(d) + bias, abs=0.1)
    assert float(entropy_from_weights(theta, log_density + 5, epsilon)) == pytest.approx(float(found), abs=1e-12)


@given(st.integers(0, 1000))
def test_equal_weights_give_the_renyi_entropy_and_no_weights_give_less(seed: int) -> None:
    theta, log_rho = gaussian(30, 2, seed), gaussian(30, 1, seed + 1)[:, 0]
    equal = entropy_from_weights(theta, torch.zeros(30), 0.3)
    kernel = torch.exp(-(theta[:, None] - theta).square().sum(dim=2) / 0.6) / (2 * math.pi * 0.3)
    pairs = (kernel.sum() - kernel.diagonal().sum()) / (30 * 29)
    assert float(equal) == pytest.approx(-math.log(pairs), abs=1e-10)
    assert entropy_from_weights(theta, log_rho, 0.3) >= equal
