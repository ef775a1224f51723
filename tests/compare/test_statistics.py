"""Means and intervals, against scipy and against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from proxlearn.compare.statistics import Interval, MeanSd, interval, paired, summarise

FIGURES = st.lists(st.tuples(*[st.floats(0, 1).map(lambda x: round(x, 6))] * 2), min_size=2, max_size=12)


def by_split(values) -> dict[int, float]:
    return dict(enumerate(values))


@given(FIGURES)
def test_a_paired_interval_is_scipys(pairs) -> None:
    theirs, ours = (list(each) for each in zip(*pairs, strict=True))
    result = paired(by_split(theirs), by_split(ours), 0.25)
    differences = np.subtract(theirs, ours)
    assert result.mean == pytest.approx(differences.mean(), abs=1e-12)
    if np.ptp(differences) > 1e-9:
        low, high = ttest_rel(theirs, ours).confidence_interval(0.95)
        assert result.student == pytest.approx((high - low) / 2, rel=1e-6)


@given(FIGURES, st.floats(0.01, 2))
def test_the_correction_widens_by_nadeau_and_bengios_factor(pairs, share) -> None:
    result = interval([a - b for a, b in pairs], share)
    k = len(pairs)
    assert result.corrected == pytest.approx(result.student * math.sqrt(1 + k * share), rel=1e-9, abs=1e-12)


@given(FIGURES)
def test_the_other_way_round_is_the_same_with_the_other_sign(pairs) -> None:
    theirs, ours = (by_split(each) for each in zip(*pairs, strict=True))
    one, other = paired(theirs, ours, 0.25), paired(ours, theirs, 0.25)
    assert (one.mean, one.student, one.corrected) == (-other.mean, other.student, other.corrected)


def test_two_values_have_students_closed_form() -> None:
    # With one degree of freedom Student's law is Cauchy's, whose quantile is a tangent.
    result = interval([1.0, 3.0])
    assert (result.mean, result.student) == (2.0, pytest.approx(math.tan(0.475 * math.pi)))
    assert result.corrected == result.student
    assert not result.excludes_zero


def test_only_splits_that_both_have_are_paired_and_one_says_nothing_of_the_spread() -> None:
    result = paired({0: 0.5, 1: 0.7, 2: 0.9}, {1: 0.6, 2: 0.7, 3: 0.1}, 0.25)
    assert result.mean == pytest.approx(0.15)
    alone = paired({0: 0.5}, {0: 0.25}, 0.25)
    assert alone.mean == 0.25
    assert math.isnan(alone.student)
    assert not alone.excludes_zero
    assert math.isnan(paired({0: 0.5}, {1: 0.5}, 0.25).mean)


def test_a_mean_of_splits_has_the_sample_standard_deviation() -> None:
    assert summarise([1.0, 3.0]) == MeanSd(2.0, math.sqrt(2))


def test_the_text_has_both_intervals_and_a_star_by_the_corrected_one() -> None:
    clear, doubtful = Interval(1.0, 0.5, 0.9), Interval(-1.0, 0.5, 1.1)
    assert (clear.text(1), doubtful.text(1)) == ("+1.0 ± 0.5 (± 0.9) *", "-1.0 ± 0.5 (± 1.1)")
    assert (interval([0.5]).text(2), interval([]).text(2)) == ("+0.50", "")


@given(st.floats(-1e-3, 1e-3), st.integers(0, 6))
def test_no_zero_has_a_minus_sign(value: float, digits: int) -> None:
    for text in (MeanSd(value).text(digits), Interval(value, math.nan, math.nan).text(digits)):
        assert not (text.startswith("-") and float(text) == 0)
        assert float(text) == pytest.approx(value, abs=0.51 * 10**-digits)
