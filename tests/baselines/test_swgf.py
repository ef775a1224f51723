"""SWGF: laws of the sliced distance, its gradient, and a Gaussian that is reached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

from proxlearn.baselines.swgf import (
    PAPER,
    RealNvp,
    SwgfSettings,
    flow,
    sliced_distance,
    sliced_gradient,
    step,
    subtract_equal_ranks,
)
from tests.baselines.targets import MEAN, PRECISION, gaussian, implicit_euler

clouds = st.tuples(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6))
SETTINGS = SwgfSettings(
    h=2.0, steps=3, lr=1e-2, iterations=100, width=24, batch=256, directions=40, pool=4096, lr_falls=True
)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(clouds)
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


@given(clouds)
@settings(max_examples=50, deadline=None)
def test_distance_is_one_of_clouds_not_of_lists(cloud: tuple[int, int, int]) -> None:
    seed, B, D = cloud
    x, y, directions = normal(seed, B, D), normal(seed + 1, B, D), normal(seed + 2, 7, D)
    order = torch.randperm(B, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(sliced_distance(x[order], x, directions), torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(sliced_distance(x[order], y, directions), sliced_distance(y, x, directions))
    torch.testing.assert_close(sliced_gradient(x[order], y, directions), sliced_gradient(x, y, directions)[order])


@given(clouds)
@settings(max_examples=50, deadline=None)
def test_slope_is_what_autodiff_finds(cloud: tuple[int, int, int]) -> None:
    seed, B, D = cloud
    x, y, directions = normal(seed, B, D).requires_grad_(), normal(seed + 1, B, D), normal(seed + 2, 7, D)
    (expected,) = torch.autograd.grad(sliced_distance(x, y, directions), x)
    torch.testing.assert_close(sliced_gradient(x.detach(), y, directions), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@torch.no_grad()
def test_gaussian_is_reached(temperature: float, generator: torch.Generator) -> None:
    x, notes = flow(gaussian(), SETTINGS, temperature, generator)
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
    step(target, nvp, replace(SETTINGS, h=h), 1.0, generator)
    x, _ = nvp(torch.randn(4096, D, generator=generator))
    mean, std = implicit_euler(0.0, 1.0, 1.0, kappa, D * h, 1.0)
    torch.testing.assert_close(x.mean(0), torch.full((D,), mean), rtol=0, atol=0.06)
    torch.testing.assert_close(x.std(0), torch.full((D,), std), rtol=0.07, atol=0)


@torch.no_grad()
def test_tiny_step_goes_nowhere(generator: torch.Generator) -> None:
    """As h -> 0, only the distance matters, and the flow does not move."""
    nvp = RealNvp(2, 24, generator)
    z = torch.randn(2000, 2, generator=generator)
    step(gaussian(), nvp, replace(SETTINGS, h=1e-6), 1.0, generator)
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
shapes = array_shapes(min_dims=2, max_dims=2, max_side=40)


@pytest.mark.parametrize(("dtype", "width"), [(np.float32, 32), (np.float64, 64)])
@given(data=st.data())
@settings(deadline=None)
def test_partners_are_those_of_a_stable_sort(dtype: type, width: int, data: st.DataObject) -> None:
    # Adding zero turns -0 into 0, which it equals: a sort may put the two in either order.
    numbers = st.floats(-(2.0**100), 2.0**100, width=width) | st.sampled_from([0.0, 1.0, -1.0])
    x = data.draw(arrays(dtype, shapes, elements=numbers)) + dtype(0)
    y = np.sort(data.draw(arrays(dtype, x.shape, elements=numbers)), axis=1)
    order = np.argsort(x, axis=1, kind="stable")
    expected = np.empty_like(x)
    np.put_along_axis(expected, order, np.take_along_axis(x, order, axis=1) - y, axis=1)
    difference = x.copy()
    subtract_equal_ranks(difference, y)
    np.testing.assert_array_equal(difference, expected)
