"""Cells that look like numbers: labels keep a spelling that tells classes apart, and 1_0 is no number in a table."""

from __future__ import annotations

import pytest

from proxlearn.data.csv_file import parse_numeral
from proxlearn.errors import InputError
from tests.data.test_user_table import Write, load, target_of


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["000", "001", "002"], ("000", "001", "002")),
        (["01", "1"], ("01", "1")),
        (["01", "1", "1.0", "2"], ("01", "1", "2")),
        (["9007199254740992.0", "9007199254740993.0"], ("9007199254740992.0", "9007199254740993.0")),
        (["9007199254740992", "9007199254740993"], ("9007199254740992", "9007199254740993")),
        (["1", "1.0", "2", "2e0"], ("1", "2")),
        (["0", "1"], ("0", "1")),
        (["-1", "+1"], ("-1", "1")),
        (["1.0", "2.0"], ("1", "2")),
        (["0.50", "0.5", "1.5"], ("0.5", "1.5")),
    ],
)
def test_distinct_labels_stay_distinct_and_one_number_one_class(
    values: list[str], classes: tuple[str, ...], write: Write
) -> None:
    table = target_of(values * 3, None, write)
    assert table.classes == classes
    assert len(set(table.target.tolist())) == len(classes)


def test_numbers_with_leading_zeros_are_still_numbers_to_regress(write: Write) -> None:
    values = [f"{i:03}" for i in range(40)]
    assert target_of(values, None, write).target.tolist() == list(range(40))
    assert target_of(["01", "02"] * 3, "regression", write).target.tolist() == [1.0, 2.0] * 3


def test_what_only_python_takes_for_a_number_is_refused_by_its_cell(write: Write) -> None:
    assert [parse_numeral(text) for text in ("1_0", "\u0661", "x", " 1e3 ")] == [None, None, None, 1000.0]
    with pytest.raises(InputError, match="column `x` holds text among its numbers: '1_0'"):
        load(write("x,label\n1,a\n1_0,b\n3,a\n4,b\n"))
    with pytest.raises(InputError, match="target column `label` holds text among its numbers: '1_0'"):
        target_of([0.5, 1.5, "1_0", 2.5], "regression", write)
