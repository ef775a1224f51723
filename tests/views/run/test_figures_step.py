"""Figures are labelled with the step that they are of, whatever the run has done since."""

import json
import re
import shutil
from pathlib import Path

import pytest
from small_runs import run, small, status

from proxlearn.cli import main
from proxlearn.run.status import Status
from proxlearn.views.report.page import Builder, render_page
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.run.run_views import summary
from tests.conftest import config_of

FINISHED, EXTENDED, KILLED = 10, 40, 23


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What kill -9 at step 23 leaves of a run that was finished at 10 and extended: a copy of its folder."""
    return killed_copy(tmp_path, monkeypatch, small)


def killed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config) -> Path:
    made, copy = tmp_path / "made", tmp_path / "killed"
    run(config(steps=FINISHED), made)

    def running(self: Status, now) -> None:
        if now.cloud.step == KILLED:
            self.write("running", now)
            shutil.copytree(made, copy)

    with monkeypatch.context() as patched:
        patched.setattr(Status, "running", running)
        run(config(steps=EXTENDED), made)
    return copy


def test_figures_of_a_killed_extension_have_their_own_step_everywhere(killed: Path) -> None:
    note = f"figures of step {FINISHED}; the run is at {KILLED}"
    assert status(killed)["step"] == KILLED
    assert main(["plot", str(killed)]) == 0
    text = (killed / "accuracy.md").read_text()
    assert f"after {FINISHED} recursions" in text.splitlines()[0]
    assert note[1:] in text
    assert note[1:] in summary(killed)
    data = Builder([killed]).data()
    assert data["runs"][0]["figures_note"] == note
    assert render_page(data).count(note) >= 2


def test_the_confusion_matrix_has_it_in_its_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def config(steps: int):
        return config_of("dataset=wdbc", "N=8", f"steps={steps}", "threads=1")

    killed = killed_copy(tmp_path, monkeypatch, config)
    titles = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda self, text, **_: titles.append(text))
    assert main(["plot", str(killed)]) == 0
    assert [title for title in titles if f"figures of step {FINISHED}; the run is at {KILLED}" in title]


def test_a_run_that_goes_on_or_ends_has_figures_of_its_end(killed: Path) -> None:
    run(small(steps=EXTENDED), killed)
    assert status(killed)["figures_step"] == EXTENDED
    found = read_run_data(killed)
    assert (found.figures_step, found.figures_note) == (EXTENDED, "")


@pytest.mark.parametrize(
    ("state", "step", "said"),
    [("finished", FINISHED, ""), ("stopped", FINISHED, ""), ("running", None, "which is not known")],
)
def test_old_folders_know_the_step_where_a_session_ended(
    tmp_path: Path, state: str, step: int | None, said: str
) -> None:
    run(small(steps=FINISHED), tmp_path)
    values = status(tmp_path)
    del values["figures_step"]
    (tmp_path / "status.json").write_text(json.dumps(values | {"state": state}))
    found = read_run_data(tmp_path)
    assert found.figures_step == step
    assert said in found.figures_note
    assert main(["plot", str(tmp_path)]) == 0
    heading = (tmp_path / "accuracy.md").read_text().splitlines()[0]
    assert bool(re.search(r"after \d+ recursions", heading)) == (step is not None)


def test_a_kill_while_the_figures_are_written_leaves_figures_of_no_known_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small(steps=FINISHED), tmp_path / "made")
    monkeypatch.setattr(
        "proxlearn.run.result_files.write_figures", lambda folder, *_: shutil.copytree(folder.path, tmp_path / "killed")
    )
    run(small(steps=EXTENDED), tmp_path / "made")
    assert read_run_data(tmp_path / "killed").figures_step is None
