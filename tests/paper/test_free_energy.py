"""F_beta along a run: its parts, its standard errors; and the distance of a run from a published curve."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.core.cloud import PointCloud
from proxlearn.core.entropy import entropy
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.paper import published
from proxlearn.paper.archive import ArchivedRun
from proxlearn.paper.archive_files import PackedRun, TextTable
from proxlearn.paper.curves_page import (
    PANELS,
    CurveDistance,
    PublishedPanel,
    curve_distance,
    logistic,
    misread_risk,
    published_curve,
    risk_paper,
    snapped,
)
from proxlearn.paper.free_energy import COLUMNS, GROUPS, free_energy_table, jackknife_error, weights_correlation

HYPER = Hyper(beta=0.5, h=1e-3, epsilon=0.1)


def gaussian_cloud(seed: int, N: int = 400, p: int = 3, step: int = 0) -> PointCloud:
    theta = torch.randn(N, p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return PointCloud(theta, -0.5 * theta.square().sum(dim=1), step)


@pytest.fixture(scope="module")
def risk() -> Risk:
    x = torch.linspace(-3, 3, 40, dtype=torch.float64)
    return Risk(x[:, None], torch.sin(x))


def table(text_table: TextTable) -> pd.DataFrame:
    return pd.DataFrame([[float(cell or "nan") for cell in row] for row in text_table.rows], columns=COLUMNS)


def test_the_free_energy_is_the_risk_of_the_plain_mean_minus_the_entropy_over_beta(risk: Risk) -> None:
    clouds = [gaussian_cloud(0), gaussian_cloud(1, step=10)]
    rows = table(free_energy_table(risk, HYPER, clouds))
    for row, cloud in zip(rows.itertuples(), clouds, strict=True):
        f = risk.predict(cloud, risk.samples.X, "unweighted")
        assert row.risk == pytest.approx(float((risk.samples.y.reshape(-1) - f).square().mean()), rel=1e-6)
        assert row.free_energy == pytest.approx(row.risk - float(entropy(cloud.theta)) / 0.5, rel=1e-6)
    assert math.isnan(rows["change"][0])
    assert rows["change"][1] == pytest.approx(rows["free_energy"].diff()[1], rel=1e-5)
    # These weights are the density itself.
    assert rows["weights_correlation"].min() > 0.8
    assert rows["entropy_from_weights"][0] == pytest.approx(rows["entropy"][0], abs=0.3)


def test_under_a_noise_scale_the_beta_is_that_of_the_noise(risk: Risk) -> None:
    scaled = Hyper(beta=0.5, h=1e-3, epsilon=0.1, noise_scale=0.1)
    (row,) = table(free_energy_table(risk, scaled, [gaussian_cloud(0)])).itertuples()
    assert row.free_energy == pytest.approx(row.risk - row.entropy / 50, rel=1e-6)


@pytest.mark.parametrize("p", [3, 12])
def test_the_standard_error_is_that_of_repeated_draws(risk: Risk, p: int) -> None:
    """Delete-a-group jackknife: on average at least the true spread, and at most twice it."""
    features = torch.randn(30, p - 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    other = risk if p == 3 else Risk(features, features[:, 0])
    rows = pd.concat([table(free_energy_table(other, HYPER, [gaussian_cloud(seed, p=p)])) for seed in range(30)])
    ratio = rows["free_energy_error"].mean() / rows["free_energy"].std()
    assert 0.8 < ratio < 2


def test_a_change_of_a_common_shift_has_no_error(risk: Risk) -> None:
    """Both clouds lose the same particles, so that their common noise cancels."""
    cloud = gaussian_cloud(0)
    moved = PointCloud(cloud.theta * 1.1, cloud.log_rho, 1)
    rows = table(free_energy_table(risk, Hyper(beta=1e-3, h=1e-3, epsilon=0.1), [cloud, moved]))
    assert rows["change"][1] == pytest.approx(-3 * math.log(1.1) / 1e-3, rel=1e-2)
    assert rows["change_error"][1] < 1e-2 * rows["free_energy_error"][1]


@given(st.lists(st.floats(-10, 10), min_size=GROUPS, max_size=GROUPS))
def test_the_jackknife_of_a_mean_is_its_standard_error(values: list[float]) -> None:
    numbers = torch.tensor(values, dtype=torch.float64)
    without_each = (numbers.sum() - numbers) / (GROUPS - 1)
    expected = float(numbers.std()) / math.sqrt(GROUPS)
    assert jackknife_error(without_each) == pytest.approx(expected, abs=1e-9)


def test_equal_weights_have_no_correlation() -> None:
    cloud = gaussian_cloud(0)
    assert math.isnan(weights_correlation(PointCloud(cloud.theta, torch.zeros(400))))


def run_along(panel: PublishedPanel, estimate: str, factor: float) -> ArchivedRun:
    """A run whose risk is a multiple of the published one at the published points."""
    curve = published_curve(panel.figure, estimate)
    rows = [("0", "1.0"), *((str(k), repr(factor * risk)) for k, risk in zip(curve["k"], curve["risk"], strict=True))]
    return ArchivedRun(PackedRun("a run", {}, {}, TextTable(("step", panel.column(estimate)), tuple(rows))))


@given(st.sampled_from(PANELS), st.sampled_from(["weighted", "unweighted"]), st.floats(0.5, 2))
def test_the_distance_from_a_curve_is_that_of_the_logarithms(
    panel: PublishedPanel, estimate: str, factor: float
) -> None:
    distance = curve_distance(run_along(panel, estimate, factor), panel, estimate)
    curve = published_curve(panel.figure, estimate)
    assert isinstance(distance, CurveDistance)
    assert distance.largest == pytest.approx(math.log(factor), abs=1e-9)
    assert distance.points == (curve["k"] >= panel.first_step).sum() > 0
    assert distance.outside <= abs(distance.largest) + 1e-9


def test_the_published_points_are_within_their_lines() -> None:
    for panel in PANELS:
        for estimate in ("weighted", "unweighted"):
            curve = published_curve(panel.figure, estimate)
            assert len(curve) > 30
            assert ((curve["low"] <= curve["risk"]) & (curve["risk"] <= curve["high"])).all()
            inside = curve_distance(run_along(panel, estimate, 1.0), panel, estimate)
            assert inside is not None
            assert inside.outside == 0


def test_a_run_that_is_too_short_has_no_distance() -> None:
    panel = PANELS[0]
    rows = TextTable(("step", panel.column("weighted")), (("0", "1"), ("100", "1")))
    assert curve_distance(ArchivedRun(PackedRun("a run", {}, {}, rows)), panel, "weighted") is None


def test_read_as_float32_a_value_near_one_becomes_small_in_the_first_half_only() -> None:
    f, labels = np.full(170, 20.0), np.ones(170)
    assert risk_paper(snapped(logistic(f)), labels) == 0
    assert misread_risk(f, labels) == pytest.approx(0.5 / 170 * math.sqrt(85) * (1 - 2**-7), rel=1e-6)
    assert misread_risk(-f, 0 * labels) < 1e-8, "values near 0 stay near 0"


def test_the_plateaus_of_figure_2_are_those_of_its_parts() -> None:
    """.25 / sqrt(399) at the start and .5 sqrt(173) / 399: the left panel is on the 399 training rows."""
    left = published_curve("fig2a", "unweighted")["risk"].iloc[0]
    assert left == pytest.approx(0.25 / math.sqrt(399), rel=0.01)
    assert published_curve("fig2a", "weighted")["risk"].iloc[0] == pytest.approx(0.5 * math.sqrt(173) / 399, rel=0.01)
    assert published_curve("fig2b", "weighted")["risk"].median() == pytest.approx(0.5 * math.sqrt(39) / 170, rel=0.01)
    assert published.STEPS["shd"] == published_curve("fig3", "weighted")["k"].iloc[-1]
