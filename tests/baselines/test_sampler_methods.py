"""Unadjusted Langevin dynamics, whose bias on a Gaussian is known.

SVGD: its velocity agrees with the definition, invariants hold, and a Gaussian is reached.

SWGF: laws of the sliced distance, its gradient, and a Gaussian that is reached.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

from proxlearn.baselines.langevin_sampler import LangevinSettings, flow
from proxlearn.baselines.sampler import clip_rows
from proxlearn.baselines.svgd import SvgdSettings, velocity
from proxlearn.baselines.svgd import flow as svgd_flow
from proxlearn.baselines.swgf import (
    PAPER,
    RealNvp,
    SwgfSettings,
    sliced_distance,
    sliced_gradient,
    step,
    subtract_equal_ranks,
)
from proxlearn.baselines.swgf import (
    flow as swgf_flow,
)
from tests.baselines.targets import MEAN, PRECISION, gaussian, implicit_euler


@pytest.mark.parametrize("temperature", [1.0, 0.2])
@pytest.mark.parametrize("eta", [0.05, 0.2])
def test_gaussian_is_reached_with_the_known_bias(eta: float, temperature: float, generator: torch.Generator) -> None:
    """In white coordinates, v <- (1 - eta) v + sqrt(2 eta T) xi has the variance T / (1 - eta / 2)."""
    covariance = torch.linalg.inv(torch.tensor(PRECISION))
    L = torch.linalg.cholesky(covariance)
    x, _ = flow(gaussian(), L, LangevinSettings(eta=eta, steps=120, between=60), temperature, generator)
    assert x.shape == (4096, 2)
    biased = temperature * covariance / (1 - eta / 2)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(biased), (x - torch.tensor(MEAN)).T, upper=False)
    # Four standard errors of 4096 samples.
    assert float(white.mean(1).abs().max()) < 4 / 64
    torch.testing.assert_close(torch.cov(white), torch.eye(2), rtol=0, atol=4 * 2**0.5 / 64)


def test_far_out_no_step_is_longer_than_one(generator: torch.Generator) -> None:
    drift = torch.tensor([[30.0, 40.0], [0.3, -0.4], [0.0, 0.0]])
    torch.testing.assert_close(clip_rows(drift), torch.tensor([[0.6, 0.8], [0.3, -0.4], [0.0, 0.0]]))
    # A curvature for which the plain step would double its distance at every turn comes home nevertheless.
    stiff = gaussian((0.0, 0.0), ((30.0, 0.0), (0.0, 30.0)))
    x, _ = flow(stiff, torch.eye(2), LangevinSettings(eta=0.1, steps=200, between=10), 1.0, generator)
    assert float(x.abs().max()) < 10


def test_ledger_falls_to_the_least_value(generator: torch.Generator) -> None:
    covariance = torch.linalg.inv(torch.tensor(PRECISION))
    settings = LangevinSettings(eta=0.1, steps=120, between=60)
    _, notes = flow(gaussian(), torch.linalg.cholesky(covariance), settings, 1.0, generator)
    least = -float(torch.logdet(2 * torch.pi * covariance)) / 2
    ledger = notes["ledger"]
    assert ledger[0]["functional"] > ledger[1]["functional"]
    assert ledger[1]["decreased"]
    assert ledger[-1]["functional"] == pytest.approx(least, abs=0.05)


shapes = st.tuples(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 9))


def flow_and_points(seed: int, D: int, width: int) -> tuple[RealNvp, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    nvp = RealNvp(D, width, generator, torch.float64)
    with torch.no_grad():
        for parameter in nvp.parameters:
            parameter.normal_(std=0.7 * parameter.shape[-1] ** -0.5, generator=generator)
    return nvp, torch.randn(6, D, generator=generator, dtype=torch.float64)


@given(shapes)
@settings(max_examples=40, deadline=None)
@torch.no_grad()
def test_inverse_leads_back(shape: tuple[int, int, int]) -> None:
    nvp, z = flow_and_points(*shape)
    x, _ = nvp(z)
    torch.testing.assert_close(nvp.inverse(x), z, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(nvp(nvp.inverse(z))[0], z, rtol=1e-8, atol=1e-8)


@given(shapes)
@settings(max_examples=25, deadline=None)
def test_log_det_is_that_of_the_jacobian(shape: tuple[int, int, int]) -> None:
    nvp, z = flow_and_points(*shape)
    jacobian = torch.stack([torch.autograd.functional.jacobian(lambda one: nvp(one[None])[0][0], point) for point in z])
    torch.testing.assert_close(nvp(z)[1].detach(), torch.linalg.slogdet(jacobian).logabsdet, rtol=1e-8, atol=1e-8)


@given(shapes)
@settings(max_examples=25, deadline=None)
@torch.no_grad()
def test_rows_do_not_know_each_other(shape: tuple[int, int, int]) -> None:
    nvp, z = flow_and_points(*shape)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for original, permuted in zip(nvp(z), nvp(z[order]), strict=True):
        torch.testing.assert_close(permuted, original[order])


@given(shapes)
@settings(max_examples=25, deadline=None)
@torch.no_grad()
def test_first_flow_is_the_identity(shape: tuple[int, int, int]) -> None:
    _, z = flow_and_points(*shape)
    x, log_det = RealNvp(*shape[1:], torch.Generator().manual_seed(shape[0]), torch.float64)(z)
    assert torch.equal(x, z)
    assert not log_det.any()


def test_every_parameter_matters() -> None:
    nvp, z = flow_and_points(0, 5, 6)
    x, log_det = nvp(z)
    torch.autograd.backward((x.square().sum() + log_det.square().sum(),))
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in nvp.parameters)


clouds = st.tuples(st.integers(0, 10**6), st.integers(3, 12), st.integers(1, 4))
SETTINGS = SvgdSettings(particles=200, iterations=300, lr=0.1)


def cloud(seed: int, N: int, D: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, N, D, generator=generator, dtype=torch.float64).unbind()


@given(clouds, st.floats(0, 2))
@settings(max_examples=40, deadline=None)
def test_velocity_is_the_definition(shape: tuple[int, int, int], temperature: float) -> None:
    v, slope = cloud(*shape)
    b = float(torch.cdist(v, v).square().median()) / math.log(len(v))

    def kernel(a: Tensor, c: Tensor) -> Tensor:
        return torch.exp(-(a - c).square().sum() / b)

    expected = torch.zeros_like(v)
    for i in range(len(v)):
        for j in range(len(v)):
            pull = -kernel(v[j], v[i]) * slope[j]
            expected[i] += (pull + temperature * torch.func.grad(kernel)(v[j], v[i])) / len(v)
    torch.testing.assert_close(velocity(v, slope, temperature), expected, rtol=1e-6, atol=1e-9)


@given(clouds)
@settings(max_examples=40, deadline=None)
def test_repulsion_alone_moves_no_centre_of_mass(shape: tuple[int, int, int]) -> None:
    v, _ = cloud(*shape)
    pushed = velocity(v, torch.zeros_like(v), 1.0)
    torch.testing.assert_close(pushed.mean(0), torch.zeros_like(v[0]), rtol=0, atol=1e-9)


def test_permuted_particles_move_to_permuted_places() -> None:
    x, _ = cloud(0, 40, 2)
    target, L = gaussian(), torch.eye(2, dtype=torch.float64)
    target = type(target)(target.mean.double(), target.precision.double())
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    flow_settings = SvgdSettings(particles=40, iterations=20, lr=0.05)
    torch.testing.assert_close(
        svgd_flow(target, L, x[order], flow_settings, 1.0)[0], svgd_flow(target, L, x, flow_settings, 1.0)[0][order]
    )


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_gaussian_is_reached(temperature: float, generator: torch.Generator) -> None:
    """The Gaussian is reached up to the loss of spread that is known for few particles."""
    covariance = temperature * torch.linalg.inv(torch.tensor(PRECISION))
    x = torch.randn(SETTINGS.particles, 2, generator=generator)
    x, notes = svgd_flow(gaussian(), torch.linalg.cholesky(covariance), x, SETTINGS, temperature)
    torch.testing.assert_close(x.mean(0), torch.tensor(MEAN), rtol=0, atol=0.03)
    torch.testing.assert_close(torch.cov(x.T), covariance, rtol=0.1, atol=0.05 * temperature)
    assert notes["ledger"][1]["decreased"]
    assert notes["ledger"][-1]["functional"] < notes["ledger"][0]["functional"]


clouds_swgf = st.tuples(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6))
SETTINGS_SWGF = SwgfSettings(
    h=2.0, steps=3, lr=1e-2, iterations=100, width=24, batch=256, directions=40, pool=4096, lr_falls=True
)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(clouds_swgf)
@settings(max_examples=50, deadline=None)
def test_shifted_cloud_is_at_the_squared_shift_over_the_dimension(cloud: tuple[int, int, int]) -> None:
    """This is exact for the mean over any orthonormal basis, because sorting keeps the order of a shifted cloud."""
    seed, B, D = cloud
    x, shift = normal(seed, B, D), normal(seed + 1, D)
    basis, _ = torch.linalg.qr(normal(seed + 2, D, D))
    torch.testing.assert_close(sliced_distance(x + shift, x, basis), shift.square().sum() / D)


def test_random_directions_agree_in_expectation() -> None:
    x, shift = normal(0, 30, 5), normal(1, 5)
    directions = torch.nn.functional.normalize(normal(2, 20000, 5))
    torch.testing.assert_close(sliced_distance(x + shift, x, directions), shift.square().sum() / 5, rtol=0.03, atol=0)


@given(clouds_swgf)
@settings(max_examples=50, deadline=None)
def test_distance_is_one_of_clouds_not_of_lists(cloud: tuple[int, int, int]) -> None:
    seed, B, D = cloud
    x, y, directions = normal(seed, B, D), normal(seed + 1, B, D), normal(seed + 2, 7, D)
    order = torch.randperm(B, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(sliced_distance(x[order], x, directions), torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(sliced_distance(x[order], y, directions), sliced_distance(y, x, directions))
    torch.testing.assert_close(sliced_gradient(x[order], y, directions), sliced_gradient(x, y, directions)[order])


@given(clouds_swgf)
@settings(max_examples=50, deadline=None)
def test_slope_is_what_autodiff_finds(cloud: tuple[int, int, int]) -> None:
    seed, B, D = cloud
    x, y, directions = normal(seed, B, D).requires_grad_(), normal(seed + 1, B, D), normal(seed + 2, 7, D)
    (expected,) = torch.autograd.grad(sliced_distance(x, y, directions), x)
    torch.testing.assert_close(sliced_gradient(x.detach(), y, directions), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@torch.no_grad()
def test_gaussian_is_reached_swgf(temperature: float, generator: torch.Generator) -> None:
    x, notes = swgf_flow(gaussian(), SETTINGS_SWGF, temperature, generator)
    covariance = temperature * torch.linalg.inv(torch.tensor(PRECISION))
    torch.testing.assert_close(x.mean(0), torch.tensor(MEAN), rtol=0, atol=0.1)
    torch.testing.assert_close(torch.cov(x.T), covariance, rtol=0.15, atol=0.08 * temperature)
    assert [row["decreased"] for row in notes["ledger"][1:3]] == [True, True]
    # The least value of the functional is -T log of the normalising constant.
    least = -temperature * float(torch.logdet(2 * torch.pi * covariance)) / 2
    assert least - 0.02 < notes["ledger"][-1]["functional"] < least + 0.05


@torch.no_grad()
def test_step_is_an_implicit_euler_step_of_h_times_the_dimension(generator: torch.Generator) -> None:
    """Between isotropic Gaussians, SW2^2 = |shift|^2 / D + (difference of spreads)^2, which is W2^2 / D."""
    D, h, kappa = 3, 0.15, 2.0
    target = gaussian((1.0,) * D, ((kappa, 0.0, 0.0), (0.0, kappa, 0.0), (0.0, 0.0, kappa)))
    nvp = RealNvp(D, 24, generator)
    step(target, nvp, replace(SETTINGS_SWGF, h=h), 1.0, generator)
    x, _ = nvp(torch.randn(4096, D, generator=generator))
    mean, std = implicit_euler(0.0, 1.0, 1.0, kappa, D * h, 1.0)
    torch.testing.assert_close(x.mean(0), torch.full((D,), mean), rtol=0, atol=0.06)
    torch.testing.assert_close(x.std(0), torch.full((D,), std), rtol=0.07, atol=0)


@torch.no_grad()
def test_tiny_step_goes_nowhere(generator: torch.Generator) -> None:
    """As h -> 0, only the distance matters, and the flow does not move."""
    nvp = RealNvp(2, 24, generator)
    z = torch.randn(2000, 2, generator=generator)
    step(gaussian(), nvp, replace(SETTINGS_SWGF, h=1e-6), 1.0, generator)
    x, _ = nvp(z)
    assert float(x.mean(0).abs().max()) < 0.1
    torch.testing.assert_close(torch.cov(x.T), torch.eye(2), rtol=0, atol=0.15)


def test_published_settings() -> None:
    for name, (h, steps, lr) in {
        "banana": (102, 5, 1e-4),
        "diabetes": (5.1e-3, 10, 5e-4),
        "twonorm": (1e-5, 20, 1e-4),
    }.items():
        paper_settings = PAPER[name]
        assert paper_settings.h == pytest.approx(h, rel=0.03)
        assert (
            paper_settings.steps,
            paper_settings.lr,
            paper_settings.width,
            paper_settings.batch,
            paper_settings.directions,
        ) == (steps, lr, 512, 1024, 1000)
        assert paper_settings.iterations == 500
        assert not paper_settings.lr_falls


# Numbers meet those of equal rank, whatever their signs, sizes and repetitions.
shapes_swgf = array_shapes(min_dims=2, max_dims=2, max_side=40)


@pytest.mark.parametrize(("dtype", "width"), [(np.float32, 32), (np.float64, 64)])
@given(data=st.data())
@settings(deadline=None)
def test_partners_are_those_of_a_stable_sort(dtype: type, width: int, data: st.DataObject) -> None:
    # Adding zero turns -0 into 0, which it equals: a sort may put the two in either order.
    numbers = st.floats(-(2.0**100), 2.0**100, width=width) | st.sampled_from([0.0, 1.0, -1.0])
    x = data.draw(arrays(dtype, shapes_swgf, elements=numbers)) + dtype(0)
    y = np.sort(data.draw(arrays(dtype, x.shape, elements=numbers)), axis=1)
    order = np.argsort(x, axis=1, kind="stable")
    expected = np.empty_like(x)
    np.put_along_axis(expected, order, np.take_along_axis(x, order, axis=1) - y, axis=1)
    difference = x.copy()
    subtract_equal_ranks(difference, y)
    np.testing.assert_array_equal(difference, expected)
