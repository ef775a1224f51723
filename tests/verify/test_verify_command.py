"""`proxlearn verify`: the quick version as a whole, what it stores, and the committed pages."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.cli import main
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.verify import page, risk_experiment_page
from proxlearn.verify import plan as plan_module
from proxlearn.verify.law import fit_order
from proxlearn.verify.pieces import rounded, stored
from proxlearn.verify.plan import DIMENSIONS, plan
from proxlearn.verify.risk_experiment import PROBLEMS, STEPS, UPDATES, make_problem

COMMITTED = Path(__file__).parents[2] / "outputs" / "verify"


def test_the_quick_version_computes_each_piece_once_and_finds_the_orders(tmp_path: Path, capfd, monkeypatch) -> None:
    # Two widths per dimension instead of five; with them, kappa still ranges from 0.1 to 100.
    monkeypatch.setattr(plan_module, "MULTIPLES", (1 / 16, 4.0))
    folder = tmp_path / "results"
    assert main(["verify", "--quick", "-o", str(folder)]) == 0
    names = {path.name for path in folder.iterdir()}
    assert {"verify.md", "results.jsonl", "law.png", "weights.png"} <= names
    pieces = plan(quick=True)
    assert len(ResultCache(folder / "results.jsonl")) == len(pieces)
    rows = list(stored(pieces, folder / "results.jsonl"))
    for flow, found in page.orders(rows).items():
        assert page.expected(flow, found).startswith("yes"), (flow, found)
    for _, result in rows[:4]:
        assert min(result["space_orders"]) >= 1.9
        assert min(result["time_orders"]) >= 0.9
        assert result["lowest"] >= 0
        assert result["free_energy_rises"] == 0
    before = (folder / "verify.md").read_bytes()
    capfd.readouterr()
    assert main(["verify", "--quick", "-o", str(folder)]) == 0
    assert "finished" not in capfd.readouterr().err, "nothing is computed again"
    assert (folder / "verify.md").read_bytes() == before


@pytest.mark.parametrize(
    "args, message",
    [
        (["--experiment", "weigths"], "did you mean `weights`"),
        (["--experiment", "weights", "--quick"], "leave out --quick"),
        (["--jobs", "0"], "--jobs"),
        (["--page", "-o", "empty"], "leave out --page"),
    ],
)
def test_wrong_input_is_one_line_with_the_remedy(
    args: list[str], message: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["verify", *args]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_page_of_another_origin_is_not_replaced(tmp_path: Path, capsys) -> None:
    (tmp_path / "results.jsonl").write_bytes((COMMITTED / "results.jsonl").read_bytes())
    (tmp_path / "verify.md").write_text("my notes\n")
    assert main(["verify", "--page", "-o", str(tmp_path)]) == 2
    assert "not a page" in capsys.readouterr().err
    assert (tmp_path / "verify.md").read_text() == "my notes\n"


def test_the_committed_page_is_made_of_the_committed_results(tmp_path: Path) -> None:
    page.write(plan(quick=False), COMMITTED / "results.jsonl", tmp_path)
    assert (tmp_path / "verify.md").read_text() == (COMMITTED / "verify.md").read_text()


def test_the_committed_experiment_page_is_made_of_the_committed_results(tmp_path: Path) -> None:
    risk_experiment_page.write(risk_experiment_page.pieces(), COMMITTED / "experiment.jsonl", tmp_path)
    assert (tmp_path / "experiment.md").read_text() == (COMMITTED / "experiment.md").read_text()


def test_the_answer_has_at_most_ten_lines_and_a_number_per_dimension() -> None:
    text = (COMMITTED / "verify.md").read_text().split("\n\n")[1]
    assert len(text.splitlines()) <= 10
    numbers = re.search(r"The ratio is ([\d., ]+ and [\d.]+) in dimensions ([\d, ]+ and \d+),", text.replace("\n", " "))
    assert numbers is not None
    assert len(re.split(", | and ", numbers[1])) == len(DIMENSIONS)
    assert re.split(", | and ", numbers[2]) == [str(p) for p in DIMENSIONS]


def test_the_orders_of_the_committed_results_are_as_expected() -> None:
    rows = list(stored(plan(quick=False), COMMITTED / "results.jsonl"))
    orders = page.orders(rows)
    for flow in page.CLOSED_FORM:
        assert page.expected(flow, orders[flow]) == "yes", (flow, orders[flow])


@settings(deadline=None)
@given(st.floats(-2, 2), st.floats(0.1, 10))
def test_the_order_of_a_power_law_is_its_power(power: float, factor: float) -> None:
    scales = (1.0, 2.0, 4.0)
    order = fit_order(scales, [[factor * s**power for s in scales]] * 3)
    assert order.value == pytest.approx(power, abs=1e-9)
    assert order.half_width == pytest.approx(0, abs=1e-6)


def test_an_update_that_halves_the_risk_helps_and_costs_its_time() -> None:
    steps = [STEPS, 2 * STEPS, 4 * STEPS]
    uniform = {"risks": [1.0, 0.5, 0.25], "seconds": 1.0, "steps": steps}
    result = {"uniform": uniform, "cells": {"1 1": [[0.5, 2.0]] * len(UPDATES)}}
    assert risk_experiment_page.log_ratios(result, "proximal", "1 1", "equal recursions") == pytest.approx(
        math.log(0.5)
    )
    assert risk_experiment_page.log_ratios(result, "proximal", "1 1", "equal time") == pytest.approx(0)
    result["cells"]["1 1"] = [[None, 1.0]] * len(UPDATES)
    assert risk_experiment_page.log_ratios(result, "proximal", "1 1", "equal time") is None


@pytest.mark.parametrize("problem", [name for name in PROBLEMS if name != "banana"])
def test_a_seed_draws_new_data_and_repeats_them(problem: str) -> None:
    first, again, other = (make_problem(problem, seed) for seed in (0, 0, 1))
    assert all(bool((a == b).all()) for a, b in zip(first, again, strict=True))
    assert not np.allclose(first[1], other[1])


def test_stored_numbers_have_five_digits_and_no_nan() -> None:
    assert rounded({"a": [1.23456789, math.nan], "b": 3, "c": "x"}) == {"a": [1.2346, None], "b": 3, "c": "x"}
