"""Tables of `proxlearn status`: aligned, without empty columns, one line per run.

Results are labelled with their own step, whatever the run has done since.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.cli import main
from proxlearn.run.loop_state import RunState
from proxlearn.run.observed_status import RunSnapshot
from proxlearn.run.status_writer import Status
from proxlearn.views.report.page import PageBuilder, render_page
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.run.run_views import summary
from proxlearn.views.status_table import HEADER, format_duration, format_table, table_row
from tests.conftest import config_of
from tests.small_runs import run, small, status

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


FINISHED, EXTENDED, KILLED = 10, 40, 23
NOTE = f"results of step {FINISHED}; the run is at step {KILLED}"


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder that kill -9 at step 23 leaves of a run that had finished at step 10 and was extended."""
    return killed_copy(tmp_path, monkeypatch, small)


def killed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config) -> Path:
    original, copy = tmp_path / "original", tmp_path / "killed"
    run(config(steps=FINISHED), original)

    def after_step(self: Status, state: RunState) -> None:
        if state.step == KILLED:
            self.write("running", state.checkpoint)
            shutil.copytree(original, copy)

    with monkeypatch.context() as patched:
        patched.setattr(Status, "after_step", after_step)
        run(config(steps=EXTENDED), original)
    return copy


def test_results_of_a_killed_extension_have_their_own_step_everywhere(killed: Path) -> None:
    assert status(killed)["step"] == KILLED
    assert main(["plot", str(killed)]) == 0
    text = (killed / "accuracy.md").read_text()
    assert f"after {FINISHED} recursions" in text.splitlines()[0]
    assert NOTE[1:] in text
    assert NOTE[1:] in summary(killed)
    data = PageBuilder([killed]).data()
    assert data["runs"][0]["results_note"] == NOTE
    assert render_page(data).count(NOTE) >= 2


def test_the_confusion_matrix_has_the_step_in_its_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def config(steps: int):
        return config_of("dataset=wdbc", "N=8", f"steps={steps}", "threads=1")

    killed = killed_copy(tmp_path, monkeypatch, config)
    titles = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda self, text, **_: titles.append(text))
    assert main(["plot", str(killed)]) == 0
    assert [title for title in titles if NOTE in title]


def test_a_run_that_continues_and_ends_has_results_of_its_end(killed: Path) -> None:
    run(small(steps=EXTENDED), killed)
    assert status(killed)["figures_step"] == EXTENDED
    data = read_run_data(killed)
    assert (data.results_step, data.results_note) == (EXTENDED, "")


@pytest.mark.parametrize(
    ("state", "step", "note"),
    [("finished", FINISHED, ""), ("stopped", FINISHED, ""), ("running", None, "results of an unknown earlier step")],
)
def test_old_folders_know_the_step_where_a_session_ended(
    tmp_path: Path, state: str, step: int | None, note: str
) -> None:
    run(small(steps=FINISHED), tmp_path)
    values = status(tmp_path)
    del values["figures_step"]
    (tmp_path / "status.json").write_text(json.dumps(values | {"state": state}))
    data = read_run_data(tmp_path)
    assert data.results_step == step
    assert note in data.results_note
    assert bool(note) == bool(data.results_note)
    assert main(["plot", str(tmp_path)]) == 0
    heading = (tmp_path / "accuracy.md").read_text().splitlines()[0]
    assert bool(re.search(r"after \d+ recursions", heading)) == (step is not None)


def test_a_kill_while_the_results_are_written_leaves_results_of_an_unknown_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small(steps=FINISHED), tmp_path / "original")
    monkeypatch.setattr(
        "proxlearn.run.result_files.write_figures", lambda folder, *_: shutil.copytree(folder.path, tmp_path / "killed")
    )
    run(small(steps=EXTENDED), tmp_path / "original")
    assert read_run_data(tmp_path / "killed").results_step is None
