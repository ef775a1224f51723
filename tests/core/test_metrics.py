"""Metrics of probabilities and of weights, compared with their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.core.metrics import (
    CALIBRATION_BINS,
    calibration_error,
    discrete_free_energy,
    effective_sample_size,
    free_energy,
    weight_entropy,
)


@given(st.integers(0, 10**6), st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_the_calibration_error_by_its_definition(seed: int, C: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(3 * torch.randn(C, 40, generator=generator, dtype=torch.float64), dim=0)
    labels = torch.randint(0, C, (40,), generator=generator)
    expected = 0.0
    for k in range(CALIBRATION_BINS):
        low, high = k / CALIBRATION_BINS, (k + 1) / CALIBRATION_BINS
        inside = [m for m in range(40) if low <= float(p[:, m].max()) < high]
        if inside:
            accuracy = sum(int(p[:, m].argmax()) == int(labels[m]) for m in inside) / len(inside)
            confidence = sum(float(p[:, m].max()) for m in inside) / len(inside)
            expected += len(inside) / 40 * abs(accuracy - confidence)
    assert math.isclose(float(calibration_error(p, labels)), expected, abs_tol=1e-12)


def test_calibration_at_its_ends() -> None:
    sure = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]).double()
    assert float(calibration_error(sure, torch.tensor([0, 0, 0, 0]))) == 0
    assert float(calibration_error(sure, torch.tensor([1, 1, 1, 1]))) == 1
    three_in_four = torch.tensor([[0.75] * 4, [0.25] * 4]).double()
    assert float(calibration_error(three_in_four, torch.tensor([0, 0, 1, 0]))) == 0
    assert math.isnan(float(calibration_error(sure * math.nan, torch.tensor([0, 0, 0, 0]))))


@given(st.integers(0, 10**6), st.integers(1, 60), st.floats(-700, 700))
@settings(max_examples=40, deadline=None)
def test_figures_of_the_weights_do_not_depend_on_their_scale_and_stay_in_their_ranges(
    seed: int, N: int, shift: float
) -> None:
    log_rho = 3 * torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rho = log_rho.exp()
    ess, entropy = float(effective_sample_size(log_rho + shift)), float(weight_entropy(log_rho + shift))
    assert ess == pytest.approx(float(rho.sum() ** 2 / rho.square().sum()), rel=1e-9)
    assert 1 - 1e-9 <= ess <= N * (1 + 1e-9)
    assert -1e-9 <= entropy <= math.log(N) + 1e-9
    # The Renyi entropy of order 2 is at most the Shannon entropy.
    assert ess <= N * math.exp(-entropy) * (1 + 1e-9)


def test_uniform_weights_have_no_entropy_and_one_heavy_particle_has_log_N() -> None:
    uniform, single = torch.zeros(8).double(), torch.tensor([0.0, *[-torch.inf] * 7]).double()
    assert float(weight_entropy(uniform)) == pytest.approx(0, abs=1e-12)
    assert float(weight_entropy(single)) == pytest.approx(math.log(8))
    assert float(discrete_free_energy(torch.tensor(0.5), single, beta=2.0)) == pytest.approx(0.5 + math.log(8) / 2)


def test_the_free_energy_has_the_temperature_of_the_noise() -> None:
    assert free_energy(0.5, 3.0, beta=2.0, noise_scale=1.0) == pytest.approx(-1.0)
    assert free_energy(0.5, 3.0, beta=0.5, noise_scale=0.01) == pytest.approx(0.5 - 3 / 5000)
    assert free_energy(0.5, 3.0, beta=2.0, noise_scale=0.0) == 0.5
