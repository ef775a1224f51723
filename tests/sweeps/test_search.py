"""`proxlearn search`: a search that is killed and started again gives the trials of an uninterrupted one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from proxlearn import cli
from proxlearn.errors import InputError
from proxlearn.sweeps.search import SearchPlan, create_folder, load_study, read_plan, run_trial, sampler_of
from proxlearn.sweeps.search_space import parse_space
from proxlearn.views.sweep.search_views import trials_table
from tests.conftest import config_of
from tests.small_runs import run, small

FIXED = ["dataset=sine", "N=8", "dataset.points=40", "threads=1", "compile=off", "steps=120", "checkpoint_every=20"]
WORDS = [*FIXED, "beta=log(1,1e4)", "h=log(1e-3,1)", "--trials", "5"]


def trials(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "trials.csv").sort_values("trial", ignore_index=True)


def asked(folder: Path) -> int:
    """Return how many trials the journal of a search holds; 0 if there is none yet."""
    path = folder / "study.journal"
    return path.read_bytes().count(b'"op_code":4') if path.is_file() else 0


def test_a_trial_that_was_killed_while_its_values_were_drawn_gets_the_same_values(tmp_path: Path) -> None:
    fixed, space = parse_space([*FIXED, "validation_fraction=0.25", "steps=3", "beta=log(1,1e4)", "h=log(1e-3,1)"])
    plan = SearchPlan(tuple(fixed), tuple(space.values()), "validation_rmse_weighted")
    tables = []
    for name in ("whole", "killed"):
        create_folder(tmp_path / name, plan, "a test")
        if name == "killed":
            # As after a kill between the first value and the second one.
            trial = load_study(tmp_path / name, plan).ask()
            trial.study.sampler = sampler_of(plan, 0, 0)
            plan.space[0].suggest(trial)
            # And part of a line that a killed process was writing.
            with (tmp_path / name / "study.journal").open("ab") as file:
                file.write(b'{"op_code":5,"wor')
        for _ in range(3):
            run_trial(tmp_path / name, 3, "a test")
        assert run_trial(tmp_path / name, 3, "a test") is None
        tables.append(trials_table(plan, load_study(tmp_path / name, plan)))
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.slow
def test_a_search_killed_three_times_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "proxlearn", "search", *WORDS, "-o"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for count in (1, 2, 4):
        process = subprocess.Popen([*command, str(killed)], env=environment, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while asked(killed) < count and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for folder in (killed, whole):
        completed = subprocess.run([*command, str(folder)], env=environment, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr
    pd.testing.assert_frame_equal(trials(killed), trials(whole))
    study = load_study(killed, read_plan(killed))
    states = [trial.state.name for trial in study.get_trials()]
    assert len(states) == 5
    assert set(states) <= {"COMPLETE", "PRUNED"}
    assert trials(killed)[["beta", "h"]].drop_duplicates().shape[0] == 5
    assert len(list(killed.glob("trial-*"))) == 5
    for folder in sorted(killed.glob("trial-*")):
        # A run that was computed twice would have a row twice.
        steps = pd.read_csv(folder / "metrics.csv")["step"]
        assert steps.is_monotonic_increasing
        assert steps.is_unique
        assert (folder / "metrics.csv").read_bytes() == (whole / folder.name / "metrics.csv").read_bytes()


def test_a_search_scores_by_validation_rows_and_every_trial_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["search", *FIXED, "beta=log(1,1e4)", "activation=choice(tanh,relu)", "--workers", "2", "--trials"]
    assert cli.main([*words, "5", "-o", "s", "--no-pruning", "--sampler", "random"]) == 0, capfd.readouterr().err
    printed = capfd.readouterr().out
    table = trials(tmp_path / "s")
    assert table["validation_rmse_weighted"].notna().all()
    for number, score in zip(table["trial"], table["validation_rmse_weighted"], strict=True):
        metrics = pd.read_csv(f"s/trial-{number:04d}/metrics.csv")
        assert metrics["validation_rmse_weighted"].iloc[-1] == pytest.approx(score)
    assert "Importance of the parameters" in printed
    assert (tmp_path / "s" / "search.png").stat().st_size > 5000
    # More trials extend the search; another search is refused.
    assert cli.main([*words, "6", "-o", "s", "--no-pruning", "--sampler", "random"]) == 0
    assert "5 already finished" in capfd.readouterr().out
    pd.testing.assert_frame_equal(trials(tmp_path / "s").head(5), table)
    assert cli.main([*words, "6", "-o", "s", "--no-pruning", "--seed", "1"]) == 2
    assert "holds another search" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["beta=1"], "nothing to search"),
        (["beta=log(0,1)"], "0 < low < high"),
        (["beta=log(1)"], "is not a range of two numbers"),
        (["N=int(1.5,3)"], "write N=int"),
        (["betta=log(1,2)"], "did you mean `beta`"),
        (["split_seed=int(0,5)"], "cannot be searched"),
        (["activation=choice(tanh)"], "at least two different values"),
    ],
)
def test_a_wrong_range_is_answered_with_its_remedy(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        parse_space(words)


@pytest.mark.parametrize("dataset", ["wine", "sine"])
def test_the_validation_part_is_held_out_of_the_training_part(dataset: str) -> None:
    from proxlearn.run.experiment import build_experiment

    whole = build_experiment(config_of(f"dataset={dataset}", "beta=1"))
    part = build_experiment(config_of(f"dataset={dataset}", "beta=1", "validation_fraction=0.25"))
    rows = part.prepared.rows
    np.testing.assert_array_equal(rows["test"], whole.prepared.rows["test"])
    assert sorted([*rows["train"], *rows["validation"]]) == sorted(whole.prepared.rows["train"])
    assert len(rows["validation"]) == pytest.approx(0.25 * len(whole.prepared.rows["train"]), abs=1)
    if part.validation is not None and part.validation.labels is not None:
        shares = [
            np.bincount(part.prepared.table.target[rows[name]]) / len(rows[name]) for name in ("train", "validation")
        ]
        # The counts of a class differ by at most a row of each part.
        np.testing.assert_allclose(*shares, atol=1 / len(rows["train"]) + 1 / len(rows["validation"]))


def test_a_run_with_a_validation_part_logs_it_and_resumes(tmp_path: Path) -> None:
    run(small("validation_fraction=0.3", steps=10), tmp_path / "whole")
    run(small("validation_fraction=0.3", steps=5), tmp_path / "part")
    run(small("validation_fraction=0.3", steps=10), tmp_path / "part")
    for name in ("metrics.csv", "accuracy.csv"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    metrics = pd.read_csv(tmp_path / "whole" / "metrics.csv")
    assert metrics["validation_rmse_weighted"].notna().all()
    accuracy = pd.read_csv(tmp_path / "whole" / "accuracy.csv")
    assert set(accuracy["part"]) == {"train", "validation", "test"}
    assert set(accuracy["estimate"]) == {"weighted", "unweighted", "mean"}
