"""A sweep's table and plots need only its folder and the run folders, which can be moved together."""

import csv
import os
import shutil

import pandas as pd
import pytest

from proxlearn.cli import main
from proxlearn.run.sweep_folder import SweepFolder, SweepJob
from proxlearn.views.sweep.sweep_views import mean_over_seeds, render_sweep, summary
from tests.small_runs import run, small

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
    text = summary(folder)
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
    assert capsys.readouterr().out == f"there are no runs below {tmp_path}\n"


def test_a_malformed_sweep_folder_gets_one_line(tmp_path, capsys):
    (tmp_path / "sweep.yaml").write_text("jobs: [{number: &a 1, values: *a}]")
    assert main(["plot", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sweep.yaml cannot be read" in line
