"""Tables of `proxlearn status`: aligned, without empty columns, one line per run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.run.observed_status import RunSnapshot
from proxlearn.views.status_table import HEADER, format_duration, format_table, table_row

CELLS = st.text(alphabet="ab \n\x1b", max_size=6)


@given(st.lists(st.tuples(*[CELLS] * len(HEADER)), min_size=1, max_size=5))
def test_a_row_is_one_line_and_an_empty_column_is_omitted(rows: list[tuple[str, ...]]) -> None:
    lines = format_table(rows).splitlines()
    assert len(lines) == 1 + len(rows)
    assert "\x1b" not in "".join(lines)
    for i, name in enumerate(HEADER):
        assert (name in lines[0].split()) == (i < 2 or any(row[i] for row in rows))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (67, "1:07"), (7509, "2:05:09"), (172799, "47:59:59"), (172800, "2 days")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_job_without_a_run_has_only_its_state_and_remark() -> None:
    assert table_row("0: beta=1", None, "invalid", "why") == ("0: beta=1", "invalid", *[""] * (len(HEADER) - 3), "why")


def test_metrics_of_another_step_have_their_step_beside_them() -> None:
    run = RunSnapshot(Path("run"), "running", step=50, steps=100, newest={"test_risk_weighted": 0.25}, newest_step=40)
    row = dict(zip(HEADER, table_row("run", run), strict=True))
    assert (row["step"], row["done"], row["logged"], row["risk"], row["accuracy"]) == ("50", "50%", "40", "0.25", "")
