"""Tables in Markdown: a name is one cell of one row, whatever is in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import run, small

from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.run.tables import markdown, remarks

CELL = re.compile(r"(?:\\.|[^|\\]|\\(?=\s))*")
"""A cell of GitHub's Markdown: a backslash takes the sign after it along."""


def cells(line: str) -> list[str]:
    assert line.startswith("|")
    parts, at = [], 1
    while at < len(line):
        match = CELL.match(line, at)
        assert match is not None
        parts.append(match[0].strip())
        at = match.end() + 1
    return parts


@given(st.text(alphabet="a|\\` \n\r\x0b\u2028", max_size=8), st.text(alphabet="b|\\\n", max_size=5))
def test_a_cell_stays_one_cell(name: str, head: str) -> None:
    table = pd.DataFrame([[name, 1.5]], columns=[f"x{head}", "last"])
    lines = markdown(table).splitlines()
    assert len(lines) == 3
    for line in (lines[0], lines[2]):
        assert len(cells(line)) == 2, line
    assert cells(lines[2])[1] == "1.5"
    shown = re.sub(r"(\\*)\\\|", lambda found: found[1][: len(found[1]) // 2] + "|", cells(lines[2])[0])
    assert shown == " ".join(name.splitlines()).strip()


def test_plain_names_are_left_as_they_are() -> None:
    assert markdown(pd.DataFrame({"a": ["x_1", "C:\\data"]})) == "| a       |\n|---------|\n| x_1     |\n| C:\\data |\n"


@pytest.mark.parametrize(
    ("changes", "since"),
    [([0.4, 0.4], None), ([0.4, 0.0], 2), ([0.0, 0.0], 1), ([0.0, 0.4], None), ([None, None], None)],
)
def test_weights_are_said_to_stay_only_where_they_do(
    changes: list[float | None], since: int | None, tmp_path: Path
) -> None:
    """A kernel near the identity says nothing: a light particle's weight changes by a tiny share of a heavy one's."""
    run(small(steps=2), tmp_path)
    made = read_run_data(tmp_path)
    columns = {"kernel_offdiag": [None, 2e-17, 2e-17], "weights_change": [None, *changes]}
    metrics = made.metrics.assign(**{name: pd.Series(values, dtype=float) for name, values in columns.items()})
    said = [line for line in remarks(replace(made, metrics=metrics)) if "left the weights as they were" in line]
    assert said == (
        []
        if since is None
        else [f"At every logged recursion from {since} on, the proximal step left the weights as they were."]
    )
