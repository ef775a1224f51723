"""The plan of a sweep: an error in every job rejects the sweep; an error in some jobs is reported for these jobs.

`proxlearn search`: a search that is killed and started again gives the trials of an uninterrupted one.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from proxlearn import cli
from proxlearn.cli import main
from proxlearn.config.compose import compose, compose_with_loader, parse
from proxlearn.errors import InputError
from proxlearn.sweeps import sweep as sweep_module
from proxlearn.sweeps.search import SearchPlan, create_folder, load_study, read_plan, run_trial, sampler_of
from proxlearn.sweeps.search_space import parse_space
from proxlearn.views.sweep.search_views import trials_table
from tests.conftest import config_of
from tests.small_runs import run, small


def planned(*words):
    return sweep_module.plan_sweep(*compose_with_loader(parse(["dataset=sine", *words, "-m"])))


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_combination_is_a_job_with_its_own_run_folder(tmp_path):
    sweep = planned("beta=0.1,0.2", "epsilon=1,2,3")
    assert [job.values for job in sweep.jobs[:4]] == [
        {"beta": "0.1", "epsilon": "1"},
        {"beta": "0.1", "epsilon": "2"},
        {"beta": "0.1", "epsilon": "3"},
        {"beta": "0.2", "epsilon": "1"},
    ]
    assert len({sweep.folder.run_folder(job) for job in sweep.jobs}) == 6
    assert sweep.missing() == list(range(6))
    assert not list(tmp_path.iterdir())


def test_an_interpolation_refers_to_the_values_of_its_own_job():
    sweep = planned("seed=1,2", "split_seed=${seed}")
    assert [(config.seed, config.split_seed) for config in sweep.configs.values()] == [(1, 1), (2, 2)]


def test_a_bad_value_in_some_jobs_is_their_error_only():
    sweep = planned("beta=0.1,-1,0.2")
    assert [job.error is None for job in sweep.jobs] == [True, False, True]
    assert sweep.jobs[1].error == "beta must be a finite number > 0, got -1; try beta=0.05"
    assert sweep.missing() == [0, 2]


WRONG_AS_A_WHOLE = [
    (["beta=-1,-2"], "beta must be a finite number > 0, got -1; try beta=0.05"),
    (["betta=1,2"], "unknown key `betta`; did you mean `beta`?"),
    (["dataset=sien,wdcb"], "unknown dataset `sien`; did you mean `sine`?"),
    (["beta=0.1,-1", "fail_fast=true"], "beta must be a finite number > 0, got -1"),
    (["beta=interval(0,1)"], "beta=interval(0,1) is not a list of values; write beta=VALUE,VALUE,..."),
    (["seed=range(0,1000000000)"], "more than 10000 jobs"),
    (["seed=range(0,200)", "split_seed=range(0,200)"], "more than 10000 jobs"),
    (["+dataset._target_=os.mkdir,os.rmdir"], "_target_ is not allowed because"),
    (["fail_fast=3", "beta=0.1,0.2"], "fail_fast must be true or false"),
    (["hydra/launcher=nosuch"], "unknown hydra/launcher `nosuch`"),
    (["hydra/sweeper=nosuch"], "unknown hydra/sweeper `nosuch`"),
    (["hydra.sweep.dir=/dev/null/x", "beta=0.1,0.2"], "cannot write to /dev/null"),
]


@pytest.mark.parametrize(
    "words, message", WRONG_AS_A_WHOLE, ids=lambda value: value[0] if isinstance(value, list) else ""
)
def test_what_is_wrong_as_a_whole_gets_one_line_and_starts_nothing(words, message, tmp_path, capsys):
    assert main(["train", "-m", "dataset=sine", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_launcher_that_is_not_installed_is_named_with_its_extra():
    pytest.importorskip("hydra_plugins")
    try:
        import hydra_plugins.hydra_ray_launcher  # noqa: F401
    except ImportError:
        with pytest.raises(
            InputError, match=r"hydra/launcher=ray is not installed; run `pip install 'proxlearn\[ray\]'`"
        ):
            planned("hydra/launcher=ray")
    else:
        pytest.skip("the ray launcher is installed here")


def folder_of(*words):
    master, loader = compose_with_loader(parse(["-m", "dataset=sine", *words]))
    overrides = sweep_module.task_overrides(master, loader)
    return sweep_module.sweep_folder(
        master, overrides, [o.get_key_element() for o in overrides if o.is_sweep_override()]
    )


def test_the_sweep_folder_depends_on_what_is_swept_and_not_on_who_runs_it_or_how_far():
    reference = folder_of("beta=0.1,0.2", "N=10")
    assert reference.parent.name == "sweeps"
    assert reference.name.startswith("beta-")
    same = ["hydra/launcher=joblib", "steps=7", "threads=1", "fail_fast=true", "log_every=3"]
    assert folder_of("N=10", *same, "beta=0.1,0.2") == reference
    assert folder_of("beta=0.1,0.3", "N=10") != reference
    assert folder_of("beta=0.1,0.2", "N=11") != reference


def test_jobs_that_are_the_same_run_are_done_once_by_the_longest():
    sweep = planned("steps=10,30,20", "beta=0.1")
    assert [job.same_as for job in sweep.jobs] == [1, None, 1]
    assert sweep.missing() == [1]


def test_a_config_can_name_the_swept_values_and_the_command_line_has_the_last_word(tmp_path):
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [paper]\nhydra: {sweeper: {params: {beta: '0.1,0.2', epsilon: '1,2'}}}\n"
    )
    sweep = planned("recipe=mine", "epsilon=5", "--config-dir", str(tmp_path))
    assert [job.values for job in sweep.jobs] == [{"beta": "0.1"}, {"beta": "0.2"}]
    assert [sweep.configs[number].epsilon for number in (0, 1)] == [5, 5]


def test_two_trajectories_in_one_folder_are_refused_and_one_with_more_steps_is_not(tmp_path, capsys):
    words = ["train", "-m", "dataset=sine", "hydra.sweep.dir=s", "hydra.sweep.subdir=x"]
    assert main([*words, "beta=100,1e4"]) == 2
    errors = capsys.readouterr().err
    assert "jobs 0 (beta=100) and 1 (beta=10000.0) have the same run folder" in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())
    assert planned("steps=10,20", "hydra.sweep.subdir=x").missing() == [1]


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
@pytest.mark.parametrize("more", [[], ["--workers", "3", "--sampler", "random", "--no-pruning"]], ids=["one", "three"])
def test_a_search_killed_three_times_equals_an_uninterrupted_one(more: list[str], tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "proxlearn", "search", *WORDS, *more, "-o"]
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
    # The command that is printed at the end has the values of the best trial to the last digit.
    number = table["trial"][table["validation_rmse_weighted"].idxmin()]
    stored = yaml.safe_load(Path(f"s/trial-{number:04d}/config.yaml").read_text())
    words_of_best = re.search("on all training rows: proxlearn train (.*)", printed)
    assert words_of_best is not None
    best = compose(parse(shlex.split(words_of_best[1])))
    assert (best["beta"], best["activation"]) == (stored["beta"], stored["activation"])
    assert best["validation_fraction"] is None
    assert (tmp_path / "s" / "search.png").stat().st_size > 5000
    # More trials extend the search; another search is refused.
    assert cli.main([*words, "6", "-o", "s", "--no-pruning", "--sampler", "random"]) == 0
    assert "5 already finished" in capfd.readouterr().out
    pd.testing.assert_frame_equal(trials(tmp_path / "s").head(5), table)
    assert cli.main([*words, "6", "-o", "s", "--no-pruning", "--seed", "1"]) == 2
    assert "contains a search with other settings" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["beta=1"], "no key has a range of values to search"),
        (["beta=log(0,1)"], "0 < low < high"),
        (["beta=logg(1,2)"], "unknown function logg; use beta=log(low,high), uniform"),
        (["beta=log(1)"], "is not a range between two numbers"),
        (["N=int(1.5,3)"], "write N=int"),
        (["betta=log(1,2)"], "did you mean `beta`"),
        (["beta=1,2,3"], "write beta=choice(1,2,3)"),
        (["split_seed=int(0,5)"], "cannot be searched"),
        (["activation=choice(tanh)"], "at least two different values"),
    ],
)
def test_a_wrong_range_is_answered_with_its_remedy(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        parse_space(words)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--metric", "validation_foo"], "the runs have no metric validation_foo; did you mean `validation_"),
        (
            ["--metric", "test_rmse_weighted"],
            "is not a metric of the validation rows; did you mean `validation_rm",
        ),
        (["--metric", "validation_accuracy_weighted"], "the runs have no metric validation_accuracy_weighted"),
        (["validation_fraction=0.999"], "leaves no row for validation or none for training"),
        (["activation=choice(tanh,foo,relu)"], "activation cannot be 'foo'"),
    ],
)
def test_what_no_trial_could_do_is_refused_before_the_first_trial(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["search", *FIXED, "beta=log(1,1e4)", *words, "-o", str(tmp_path / "s")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_search_whose_trials_all_fail_states_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # A step size of this magnitude makes the cloud infinite.
    words = ["search", *FIXED, "beta=1e-300", "h=log(1e290,1e300)", "--trials", "2", "-o", "s"]
    assert cli.main(words) == 1
    printed = capfd.readouterr().out
    assert "Trial 0 failed: " in printed
    assert "Trial 1 failed: " in printed


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


def test_a_sweep_shows_the_validation_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "-m", *FIXED[:-2], "steps=2", "beta=1,2", f"hydra.sweep.dir={tmp_path}"]
    assert cli.main([*words, "validation_fraction=0.25"]) == 0
    printed = capsys.readouterr().out
    assert "| validation risk | validation rmse |" in printed
    (summary,) = tmp_path.rglob("summary.csv")
    for folder, rmse in pd.read_csv(summary)[["folder", "validation_rmse_weighted"]].itertuples(index=False):
        metrics = pd.read_csv(summary.parent / folder / "metrics.csv")
        assert rmse == pytest.approx(metrics["validation_rmse_weighted"].iloc[-1])
    assert "computed on held-out training rows" in (summary.parent / "summary.md").read_text()
