"""Unadjusted Langevin dynamics, whose bias on a Gaussian is known.

The flow is invertible, its determinant is that of its Jacobian, and it is initially the identity.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxlearn.baselines.langevin import LangevinSettings, flow
from proxlearn.baselines.sampler import clip_rows
from proxlearn.baselines.swgf import RealNvp
from tests.baselines.targets import MEAN, PRECISION, gaussian


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
