"""`proxlearn verify`: the quick version as a whole, what it stores, and the committed pages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.cli import main
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.verify import density_weights_tables as tables
from proxlearn.verify import page, weights_experiment_page
from proxlearn.verify import plan as plan_module
from proxlearn.verify.law import fit_order
from proxlearn.verify.pieces import rounded, stored
from proxlearn.verify.plan import DIMENSIONS, ON_GRID, plan
from proxlearn.verify.weights_experiment import PROBLEMS, STEPS, UPDATES, make_problem

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
    weights_experiment_page.write(weights_experiment_page.pieces(), COMMITTED / "experiment.jsonl", tmp_path)
    assert (tmp_path / "experiment.md").read_text() == (COMMITTED / "experiment.md").read_text()


def test_the_answer_has_at_most_ten_lines_and_a_number_per_dimension() -> None:
    text = (COMMITTED / "verify.md").read_text().split("\n\n")[1]
    assert len(text.splitlines()) <= 10
    assert max(map(len, text.splitlines())) <= 119
    sentence = r"other seeds\), is ([\d., ]+ and [\d.]+) in dimensions ([\d, ]+ and \d+)\."
    numbers = re.search(sentence, " ".join(text.split()))
    assert numbers is not None
    assert len(re.split(", | and ", numbers[1])) == len(DIMENSIONS)
    assert re.split(", | and ", numbers[2]) == [str(p) for p in DIMENSIONS]


def committed(part: str) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
    rows = stored(plan(quick=False), COMMITTED / "results.jsonl")
    return [(piece.arguments, result) for piece, result in rows if piece.part == part]


def test_every_flow_has_all_three_measurements_and_every_control_is_on_the_page() -> None:
    flows = {part: {a["flow"] for a, _ in committed(part)} for part in ("weak_order", "distance", "weights", "descent")}
    assert all(found == {*page.CLOSED_FORM, *ON_GRID} for found in flows.values()), flows
    text = (COMMITTED / "verify.md").read_text()
    tables = [line for line in text.splitlines() if line.startswith("|") and "| w = 0" in line]
    controls = ("1/N", "Γ1", "best Γ1", "Gibbs", "frozen", "uniform")
    assert len([line for line in text.splitlines() if "| slope " in line and "| corr." in line]) == 3
    assert len([line for line in tables if "frozen" in line]) == 3
    for line in tables:
        assert "frozen" not in line or all(f"| {name} " in line for name in controls), line


def test_the_settings_were_chosen_with_other_seeds_than_those_that_test_them() -> None:
    weights, tested = committed("weights"), committed("confirmation")
    assert not {seed for a, _ in weights for seed in a["seeds"]} & {seed for a, _ in tested for seed in a["seeds"]}
    chosen: dict[tuple[int, int], tables.Best] = {}
    for best in tables.best_settings(weights, "0.5"):
        key = (best.p, best.N)
        if key not in chosen or best.tv("proximal") < chosen[key].tv("proximal"):
            chosen[key] = best
    confirmations = tables.confirmations(tested)
    assert {(one.p, one.N): one.arguments["epsilon"] for one in confirmations} == {
        key: best.arguments["epsilon"] for key, best in chosen.items()
    }
    assert {(one.p, one.N): one.kappa for one in confirmations} == {key: best.kappa for key, best in chosen.items()}


def test_a_dimension_counts_as_better_only_if_its_simultaneous_interval_is_below_one() -> None:
    text = " ".join((COMMITTED / "verify.md").read_text().split("\n\n")[1].split())
    claims = re.search(r"clearly better in (.*?) and clearly worse in (.*?); exp", text)
    assert claims is not None
    for words, verdict in zip(claims.groups(), ("better", "worse"), strict=True):
        claimed = {int(p) for p in re.findall(r"\d+", words)}
        at_300 = [one for one in tables.confirmations(committed("confirmation")) if one.N == 300]
        assert {one.p for one in at_300 if one.verdict("kde_best") == verdict} == claimed


@settings(deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=3, max_size=8), st.integers(1, 20))
def test_a_ratio_is_paired_and_its_interval_widens_with_the_family(values: list[float], family: int) -> None:
    arguments = {"flow": "ornstein_uhlenbeck-2", "epsilon": 0.1, "h": 0.01}
    numbers = {"proximal": [0.5 * v for v in values], "kde_best": values, "gibbs": values[::-1]}
    one = tables.Confirmation(2, 300, arguments, numbers, family)
    assert one.ratio("kde_best") == pytest.approx((0.5, 0.5, 0.5))
    assert one.verdict("kde_best") == "better"
    wider = tables.Confirmation(2, 300, arguments, numbers, family + 1).ratio("gibbs")
    mean, low, high = one.ratio("gibbs")
    assert mean == pytest.approx(wider[0])
    assert wider[1] <= low <= mean <= high <= wider[2]


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
    assert weights_experiment_page.log_ratios(result, "proximal", "1 1", "equal recursions") == pytest.approx(
        math.log(0.5)
    )
    assert weights_experiment_page.log_ratios(result, "proximal", "1 1", "equal time") == pytest.approx(0)
    result["cells"]["1 1"] = [[None, 1.0]] * len(UPDATES)
    assert weights_experiment_page.log_ratios(result, "proximal", "1 1", "equal time") is None


@pytest.mark.parametrize("problem", [name for name in PROBLEMS if name != "banana"])
def test_a_seed_draws_new_data_and_repeats_them(problem: str) -> None:
    first, again, other = (make_problem(problem, seed) for seed in (0, 0, 1))
    assert all(bool((a == b).all()) for a, b in zip(first, again, strict=True))
    assert not np.allclose(first[1], other[1])


def test_stored_numbers_have_five_digits_and_no_nan() -> None:
    assert rounded({"a": [1.23456789, math.nan], "b": 3, "c": "x"}) == {"a": [1.2346, None], "b": 3, "c": "x"}
