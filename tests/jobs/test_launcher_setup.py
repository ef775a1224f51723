"""Launchers: the threads of each job, our defaults in the plugins' settings, and the substitute for `sacct`."""

import os
from pathlib import Path

import pytest

from proxlearn.config.compose import compose, parse
from proxlearn.jobs import launcher_setup, sacct_shim


def master(*words):
    return compose(parse(["-m", "dataset=sine", "beta=1,2", *words]))


@pytest.mark.parametrize(
    "words, jobs, threads",
    [
        ([], 12, None),
        (["hydra/launcher=joblib"], 12, 1),
        (["hydra/launcher=joblib"], 3, 2),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=4"], 12, 2),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=-5"], 12, 2),
        (["hydra/launcher=submitit_local"], 12, 1),
        (["hydra/launcher=submitit_local", "hydra.sweeper.max_batch_size=2"], 12, 4),
        (["hydra/launcher=submitit_local"], 1, 8),
        (["hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=3"], 12, 3),
    ],
)
def test_threads_of_a_job_are_cores_over_jobs_side_by_side(words, jobs, threads, monkeypatch):
    monkeypatch.setattr(launcher_setup, "available_cores", lambda: 8)
    assert launcher_setup.threads_per_job(master(*words), jobs) == threads


def test_submitit_local_starts_no_more_jobs_than_there_are_cores(monkeypatch):
    monkeypatch.setattr(launcher_setup, "available_cores", lambda: 8)
    assert launcher_setup.batch_size(master("hydra/launcher=submitit_local"), 100) == 8
    assert launcher_setup.batch_size(master("hydra/launcher=joblib"), 100) == 100


def test_our_defaults_are_in_the_plugins_configs_and_can_be_overridden():
    assert master("hydra/launcher=submitit_slurm").hydra.launcher.max_num_timeout == 1000
    assert master("hydra/launcher=submitit_slurm").hydra.launcher.partition is None
    assert (
        master("hydra/launcher=submitit_slurm", "hydra.launcher.max_num_timeout=3").hydra.launcher.max_num_timeout == 3
    )
    assert master("hydra/launcher=joblib").hydra.launcher.batch_size == "1"


def test_sacct_answers_from_scontrol():
    shown = (
        "JobId=8 ArrayJobId=7 ArrayTaskId=0 JobName=x UserId=me(0) JobState=RUNNING Reason=None NodeList=n1 \n"
        "JobId=7 ArrayJobId=7 ArrayTaskId=1-5%2 JobName=x JobState=PENDING Reason=Resources NodeList= \n"
        "JobId=9 JobName=y JobState=FAILED NodeList=n2\n"
    )
    assert sacct_shim.rows(shown) == ["7_0|RUNNING|n1", "7_1-5%2|PENDING|", "9|FAILED|n2"]


def test_cores_are_counted_where_the_system_knows_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """This simulates macOS, which has no os.sched_getaffinity."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert launcher_setup.available_cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert launcher_setup.available_cores() == 1


def test_nothing_else_asks_for_the_affinity() -> None:
    package = Path(launcher_setup.__file__).parent.parent
    users = [path.name for path in package.rglob("*.py") if "sched_getaffinity" in path.read_text(encoding="utf-8")]
    assert users == ["launcher_setup.py"]
