"""Figures over several runs, the verdict, and the three forms of a table."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from proxlearn.compare.statistics import MeanSd
from reproduce import sine
from reproduce.health import changed
from reproduce.measured import summarise, verdict
from reproduce.table import Column, Row, Table


def test_one_run_has_no_spread_and_none_has_no_mean() -> None:
    assert summarise([2.0]).mean == 2
    assert math.isnan(summarise([2.0]).sd)
    assert summarise([1.0, 3.0]) == MeanSd(2.0, math.sqrt(2))
    assert math.isnan(summarise([]).mean)


def test_a_figure_is_shown_with_its_spread_and_one_that_ran_away_by_its_size() -> None:
    assert MeanSd(92.25, 0.5).text(1) == "92.2 ± 0.5"
    assert MeanSd(32863.0).text(0) == "32863"
    assert MeanSd(1466860.8, 2074110.6).text(5) == "1.47e+06 ± 2.07e+06"
    assert MeanSd(math.nan).text(2) == ""


@pytest.mark.parametrize(
    "ours, paper, said",
    [
        (MeanSd(92.0), MeanSd(93.5), "agrees within 2.0 (-1.5)"),
        (MeanSd(92.0), MeanSd(95.0), "differs by -3.0 (one run)"),
        (MeanSd(92.0, 1.6), MeanSd(95.0), "agrees within the spread (-3.0)"),
        (MeanSd(92.0, 1.2), MeanSd(95.0, 1.2), "agrees within the spread (-3.0)"),
        (MeanSd(92.0, 1.2), MeanSd(95.0), "differs by -3.0"),
    ],
)
def test_a_verdict_is_by_the_allowance_or_by_twice_the_joint_spread(ours, paper, said) -> None:
    assert verdict(ours, paper, 2.0, 1, complete=True) == said
    assert verdict(ours, paper, 2.0, 1, complete=False) == "no verdict: partial"


def test_one_run_has_no_verdict_on_a_difference_and_is_named_as_one_where_it_differs() -> None:
    assert changed([], 0.5) == ""
    assert changed([40.0], 0.5) == "one run: no verdict"
    assert changed([40.0, 40.1], 0.5) == "yes (2 runs)"
    assert changed([40.0, -30.0], 0.5) == "no (2 runs)"
    assert verdict(MeanSd(92.0), MeanSd(95.0), 2.0, 1, complete=True) == "differs by -3.0 (one run)"


def test_a_table_says_the_same_in_its_three_forms(tmp_path: Path) -> None:
    columns = (Column("β"), Column("accuracy (%)", 1), Column("paper's", 1))
    made = Table("t", "A table", columns, [Row([0.05, MeanSd(92.25, 0.5), 93.0], [])], ["a note"])
    paths = made.write(tmp_path)
    assert [path.name for path in paths] == ["t.csv", "t.md", "t.tex"]
    (row,) = csv.DictReader(io.StringIO(paths[0].read_text()))
    assert (row["accuracy (%)"], row["accuracy (%) sd"], row["paper's"]) == ("92.25", "0.5", "93")
    assert "| 0.05 | 92.2 ± 0.5   | 93.0    |" in paths[1].read_text()
    assert r"0.05 & 92.2 $\pm$ 0.5 & 93.0 \\" in paths[2].read_text()
    assert r"accuracy (\%)" in paths[2].read_text()


def test_the_slope_against_one_over_N_is_recovered_and_the_distance_is_a_ratio() -> None:
    slope, intercept = sine.line({N: 0.2 + 3 / N for N in (500, 700, 1000, 2000)})
    assert (slope, intercept) == (pytest.approx(3), pytest.approx(0.2))
    twice = {N: MeanSd(2 * value) for N, value in sine.published.TABLE5.items()}
    assert sine.distance(twice) == pytest.approx(np.log(2))
