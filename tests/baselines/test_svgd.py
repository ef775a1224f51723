"""SVGD: its velocity agrees with the definition, invariants hold, and a Gaussian is reached."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.baselines.svgd import SvgdSettings, flow, velocity
from tests.baselines.targets import MEAN, PRECISION, gaussian

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
        flow(target, L, x[order], flow_settings, 1.0)[0], flow(target, L, x, flow_settings, 1.0)[0][order]
    )


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_gaussian_is_reached(temperature: float, generator: torch.Generator) -> None:
    """The Gaussian is reached up to the loss of spread that is known for few particles."""
    covariance = temperature * torch.linalg.inv(torch.tensor(PRECISION))
    x = torch.randn(SETTINGS.particles, 2, generator=generator)
    x, notes = flow(gaussian(), torch.linalg.cholesky(covariance), x, SETTINGS, temperature)
    torch.testing.assert_close(x.mean(0), torch.tensor(MEAN), rtol=0, atol=0.03)
    torch.testing.assert_close(torch.cov(x.T), covariance, rtol=0.1, atol=0.05 * temperature)
    assert notes["ledger"][1]["decreased"]
    assert notes["ledger"][-1]["functional"] < notes["ledger"][0]["functional"]
