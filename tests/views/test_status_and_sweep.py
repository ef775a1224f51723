"""Tables of `proxlearn status`: aligned, without empty columns, one line per run.

A sweep's table and plots need only its folder and the run folders, which can be moved together.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxlearn.cli import main
from proxlearn.run.loop_state import RunState
from proxlearn.run.observed_status import RunSnapshot
from proxlearn.run.status_writer import Status
from proxlearn.run.sweep_folder import SweepFolder, SweepJob
from proxlearn.views import style
from proxlearn.views.report.page import PageBuilder, render_page
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.run.run_views import summary
from proxlearn.views.status_table import HEADER, format_duration, format_table, table_row
from proxlearn.views.sweep.sweep_views import mean_over_seeds, render_sweep
from proxlearn.views.sweep.sweep_views import summary as sweep_summary
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


GRID = [(beta, epsilon, seed) for beta in (0.1, 0.4) for epsilon in (0.01, 0.1) for seed in (0, 1)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A small sweep over beta, epsilon and seed, with one job that cannot be run and one that was killed."""
    folder = tmp_path_factory.mktemp("outputs")
    sweep = SweepFolder(folder / "sweeps" / "mine")
    jobs = []
    for number, (beta, epsilon, seed) in enumerate(GRID):
        path = folder / "sine" / str(number)
        if number != 7:
            run(small(steps=30, beta=beta, epsilon=epsilon, seed=seed), path)
        values = {"beta": str(beta), "epsilon": str(epsilon), "seed": str(seed)}
        jobs.append(SweepJob(number, values, 30, os.path.relpath(path, sweep.path)))
    jobs.append(SweepJob(8, {"beta": "-1", "epsilon": "0.01", "seed": "0"}, error="beta must be above 0; try another"))
    sweep.create("a test", jobs)
    sweep.records.write("7", "killed", "a session", "its process was killed by SIGKILL")
    render_sweep(sweep.path)
    return folder


def test_the_table_has_every_job_with_its_state_metrics_and_reason(outputs):
    folder = outputs / "sweeps" / "mine"
    with (folder / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == [*["finished"] * 7, "killed", "invalid"]
    assert rows[7]["error"] == "its process was killed by SIGKILL"
    assert rows[8]["error"] == "beta must be above 0; try another"
    newest = pd.read_csv(outputs / "sine" / "3" / "metrics.csv").iloc[-1]
    assert float(rows[3]["test_risk_weighted"]) == newest["test_risk_weighted"]
    assert rows[3]["step"] == "30"
    text = sweep_summary(folder)
    assert "9 jobs: 7 finished, 1 killed, 1 invalid" in text
    assert "The same command continues the partial runs" in text


def test_metrics_over_seeds_are_their_mean(outputs):
    states = SweepFolder(outputs / "sweeps" / "mine").look()
    means = mean_over_seeds(states)
    assert list(means["runs"]) == [2, 2, 2, 1]
    risks = [pd.read_csv(outputs / "sine" / n / "metrics.csv")["test_risk_weighted"].iloc[-1] for n in ("0", "1")]
    assert means["risk"][0].startswith(f"{sum(risks) / 2:.4g} ± ")
    assert "±" not in means["risk"][3]


def test_combined_plots_are_drawn(outputs):
    names = {path.name for path in (outputs / "sweeps" / "mine").glob("*.png")}
    assert names == {"curves_risk.png", "final_risk.png", "heat_risk.png"}


def test_a_sweep_can_be_moved_with_its_runs_and_drawn_again(outputs, tmp_path, capsys):
    shutil.copytree(outputs, tmp_path / "elsewhere")
    folder = tmp_path / "elsewhere" / "sweeps" / "mine"
    (folder / "summary.csv").unlink()
    assert main(["plot", str(folder)]) == 0
    assert str(folder / "summary.csv") in capsys.readouterr().out
    assert (folder / "summary.csv").read_text() == (outputs / "sweeps" / "mine" / "summary.csv").read_text()


def test_status_shows_sweeps_and_runs_without_torch(outputs, tmp_path):
    import subprocess
    import sys

    run(small(steps=3), tmp_path / "alone")
    code = (
        "import sys; from proxlearn.cli import main; code = main(['status', *sys.argv[1:]]); "
        "assert 'torch' not in sys.modules and 'hydra' not in sys.modules; sys.exit(code)"
    )
    command = [sys.executable, "-c", code, str(outputs), str(tmp_path)]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert lines[1].split()[:4] == [str(tmp_path / "alone"), "finished", "3", "100%"]
    assert f"{outputs / 'sweeps' / 'mine'}: 7 of 9 finished" in lines
    assert any(line.startswith("7: beta=0.4") and "killed" in line and "SIGKILL" in line for line in lines)


def test_status_says_what_to_do_where_there_is_nothing(tmp_path, capsys):
    assert main(["status", str(tmp_path / "nosuch")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["status", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"there are no runs in {tmp_path}\n"


@pytest.mark.parametrize("jobs", ["[{number: &a 1, values: *a}]", "[{number: 1, values: null}]"])
def test_a_malformed_sweep_folder_gets_one_line(jobs, tmp_path, capsys):
    (tmp_path / "sweep.yaml").write_text(f"jobs: {jobs}")
    assert main(["plot", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sweep.yaml cannot be read" in line


def test_a_name_that_the_font_lacks_is_drawn_without_a_warning(tmp_path: Path) -> None:
    fig, (axes,) = style.figure(2, 2)
    axes.set_xlabel("\u6807\u7b7e \U0001f642 \x00")
    # A warning makes a test fail.
    assert [path.stat().st_size > 0 for path in style.save(fig, tmp_path, "plot")] == [True, True]
