"""Unadjusted Langevin dynamics, whose bias on a Gaussian is known."""

from __future__ import annotations

import pytest
import torch

from proxlearn.baselines.langevin import LangevinSettings, flow
from proxlearn.baselines.sampler import clip_rows
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
