"""Tables in Markdown keep a name in one cell; remarks state facts of the run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import run, small

from proxlearn.views.run.accuracy_page import remarks
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.tables import markdown

CELL = re.compile(r"(?:\\.|[^|\\]|\\(?=\s))*")
"""A cell of GitHub's Markdown: a backslash escapes the character after it."""


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
    unescaped = re.sub(r"(\\*)\\\|", lambda match: match[1][: len(match[1]) // 2] + "|", cells(lines[2])[0])
    assert unescaped == " ".join(name.splitlines()).strip()


def test_plain_names_are_left_as_they_are() -> None:
    assert markdown(pd.DataFrame({"a": ["x_1", "C:\\data"]})) == "| a       |\n|---------|\n| x_1     |\n| C:\\data |\n"


@pytest.mark.parametrize(
    ("changes", "step"),
    [([0.4, 0.4], None), ([0.4, 0.0], 2), ([0.0, 0.0], 1), ([0.0, 0.4], None), ([None, None], None)],
)
def test_weights_are_reported_as_unchanged_only_if_they_are(
    changes: list[float | None], step: int | None, tmp_path: Path
) -> None:
    """A kernel near the identity is no criterion: a tiny share of a heavy weight can change a light one."""
    run(small(steps=2), tmp_path)
    data = read_run_data(tmp_path)
    columns = {"kernel_offdiag": [None, 2e-17, 2e-17], "weights_change": [None, *changes]}
    metrics = data.metrics.assign(**{name: pd.Series(values, dtype=float) for name, values in columns.items()})
    reported = [line for line in remarks(replace(data, metrics=metrics)) if "changed the weights" in line]
    assert reported == (
        [] if step is None else [f"From recursion {step} on, no logged proximal step changed the weights."]
    )
