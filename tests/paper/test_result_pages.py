"""Every committed page of results: the conclusion comes first, tables are narrow, numbers are readable.

F_beta along a run: its parts, its standard errors; and the distance of a run from a published curve.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
from proxlearn.paper.archive import Archive, ArchivedRun
from proxlearn.paper.archive_files import PackedRun, TextTable, read_packed_runs
from proxlearn.paper.builders import build
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
from proxlearn.paper.losses_page import LOSSES
from proxlearn.paper.run_plan import PLAN
from proxlearn.paper.target_names import TARGETS
from proxlearn.paper.tuned_page import TUNED
from proxlearn.paper.weight_updates_page import WEIGHTS

OUTPUTS = Path(__file__).parents[2] / "outputs"
PAGES = sorted(path for path in OUTPUTS.rglob("*.md") if "runs" not in path.parts)
MAX_WIDTH = 110
MAX_FILES = 150


def test_the_pages_are_there() -> None:
    names = {str(path.relative_to(OUTPUTS)) for path in PAGES}
    tables = {f"paper/{name}.md" for name in TARGETS if not name.startswith("fig")}
    assert names >= tables | {"tuned.md", "weights.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_begins_with_its_conclusion(path: Path) -> None:
    title, blank, line = path.read_text(encoding="utf-8").splitlines()[:3]
    assert title.startswith("# ")
    assert blank == ""
    assert re.fullmatch(r"[A-Zr0-9].*\d.*\.|(All|Both) .*\.", line), line


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wide = [line for line in text.splitlines() if line.startswith("|") and len(line) > MAX_WIDTH]
    assert wide == []
    # A run with such a figure has diverged and is called so; a zero has no sign.
    assert re.findall(r"\d\.\d+e\+(?!00)\d+", text) == []
    assert [line for line in text.splitlines() if line.startswith("|") and re.search(r"\b(nan|inf)\b", line)] == []
    assert re.findall(r"(?<![\d.e])-0(?:\.0+)?(?![\d.])", text) == []
    assert "hydra.run.dir" not in text
    assert "## Made by" not in text


def sidecars(page: Path) -> list[Path]:
    """Return the committed files that name the versions or commands behind a page."""
    if page.parent.name == "verify":
        return [page.parent / ("experiment.jsonl" if page.stem == "experiment" else "results.jsonl")]
    if page.name == "compare.md":
        return [page.parent / "plan.json", page.parents[1] / "cells.jsonl"]
    return [page.parent / "sources.txt" if page.parent.name == "paper" else page.with_suffix("") / "results.jsonl"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_commands_and_versions_of_a_page_are_in_a_file_of_their_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"proxlearn \d+\.\d+\.\d+|revision \d+\)", text)
    contents = "".join(sidecar.read_text(encoding="utf-8") for sidecar in sidecars(path))
    assert re.search(r'"version": "\d|^proxlearn \d+\.\d+\.\d+ \(', contents, re.MULTILINE)
    if path.parent.name == "paper":
        assert f"make {path.stem}\n" in contents


def test_outputs_hold_few_files() -> None:
    listed = subprocess.run(["git", "ls-files", "outputs"], cwd=OUTPUTS.parent, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a git repository")
    assert len(listed.stdout.splitlines()) <= MAX_FILES


def test_all_is_rebuilt_from_the_archive_byte_for_byte(tmp_path: Path, monkeypatch) -> None:
    """This is `proxlearn paper all` in a clean clone, without the data; test_quick.py covers the figures."""
    monkeypatch.setenv("PROXLEARN_DATA", str(tmp_path / "no data"))
    root = tmp_path / "paper"
    root.mkdir()
    for folder in (OUTPUTS / "paper").iterdir():
        if folder.is_dir() and folder.name != "runs":
            (root / folder.name).symlink_to(folder)
    archive = Archive(root)
    # sources.txt is complete after the last page.
    for path in {path for name in TARGETS if not name.startswith("fig") for path in build(name, archive)}:
        # Files for LaTeX are built, not committed.
        if path.suffix != ".tex":
            assert path.read_bytes() == (OUTPUTS / "paper" / path.name).read_bytes(), path.name
    for measurement in (TUNED, WEIGHTS, LOSSES):
        (tmp_path / measurement.name).symlink_to(OUTPUTS / measurement.name)
        path = measurement.write(tmp_path)
        assert path is not None
        assert path.read_bytes() == (OUTPUTS / path.name).read_bytes()


def test_every_stored_fit_is_one_that_would_be_made_today() -> None:
    """A changed config would leave the stored results without a page, and all fits would be repeated."""
    assert {dataset: len(fits) for dataset, fits in TUNED.results(OUTPUTS).items()} == dict.fromkeys(TUNED.overrides, 5)
    assert {dataset: len(fits) for dataset, fits in WEIGHTS.results(OUTPUTS).items()} == dict.fromkeys(
        WEIGHTS.overrides, 20
    )


TABLES = [f"{name}.{ending}" for name in ("table1", "table2", "table3", "table4", "table5", "shd")
          for ending in ("csv", "md", "tex")]  # fmt: skip
FIGURES = [f"fig{number}.{ending}" for number in (2, 3, 4, 5) for ending in ("png", "pdf")]
HEALTH = ["health.md", "curves.md", "sources.txt"]


def paper(root: Path, *words: str, **environment: str) -> None:
    command = [sys.executable, "-m", "proxlearn", "paper", *words, "--into", root.name]
    ended = subprocess.run(command, cwd=root.parent, capture_output=True, text=True, env=os.environ | environment)
    assert ended.returncode == 0, ended.stderr[-2000:]


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file() and path.suffix}


@pytest.mark.slow
def test_quick_builds_all_and_the_archive_alone_rebuilds_it_identically(paper_files: Path, tmp_path: Path) -> None:
    root = tmp_path / "results"
    paper(root, "--quick")
    built = files(root)
    assert sorted(built) == sorted([*TABLES, *FIGURES, *HEALTH])
    packed = {name for entry in PLAN for name in read_packed_runs(root / entry.experiment)}
    assert packed == {run.name for entry in PLAN for run in entry.runs(root, quick=True)}
    for name in built:
        (root / name).unlink()
    # As `make paper` in a clean clone: neither the run folders nor the data are there.
    shutil.rmtree(root / "runs")
    paper(root, "tables", "figures", "curves", "health", PROXLEARN_DATA=str(tmp_path))
    assert files(root) == built
    for name in ("sources.txt", "table2.tex", "fig4.png"):
        assert b"proxlearn train experiment=" in built[name], f"{name} does not name the command that made it"
    assert str(tmp_path).encode() not in built["fig4.png"] + built["table2.tex"]


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
    distance = curve_distance([run_along(panel, estimate, factor)], panel, estimate)
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
            inside = curve_distance([run_along(panel, estimate, 1.0)], panel, estimate)
            assert inside is not None
            assert inside.outside == 0


def test_a_run_that_is_too_short_has_no_distance() -> None:
    panel = PANELS[0]
    rows = TextTable(("step", panel.column("weighted")), (("0", "1"), ("100", "1")))
    assert curve_distance([ArchivedRun(PackedRun("a run", {}, {}, rows))], panel, "weighted") is None


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
