"""A job in a separate process: whatever happens to it, its supervisor survives and reports it.

A worker ends soon after its parent process is killed, but not before its job has been recorded.

Launchers: the threads of each job, our defaults in the plugins' settings, and the substitute for `sacct`.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import proxlearn as pl
from proxlearn.config.compose import compose, parse
from proxlearn.data.table_problems import TableProblem
from proxlearn.jobs import launcher_setup, sacct_shim
from proxlearn.jobs.job import run_in_subprocess
from proxlearn.run.signals import StopRequest


def ends_with(code):
    print("words", flush=True)
    return code


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def raises():
    raise ValueError("surprise")


def tells_where():
    Path("here").touch()
    return 0


def waits_for_a_signal(ready):
    with StopRequest() as stop:
        ready.touch()
        while stop.signal is None:
            time.sleep(0.01)
    return 128 + stop.signal


def job(target, *args, folder, stop=lambda: False):
    return run_in_subprocess(
        target, args, preload=("proxlearn.run.train",), log=folder / "log", directory=folder, stop=stop
    )


@pytest.mark.parametrize("code", [0, 1, 2])
def test_its_exit_code_and_its_words_come_back(tmp_path, code):
    assert job(ends_with, code, folder=tmp_path) == code
    assert (tmp_path / "log").read_text() == "words\n"


def test_a_kill_is_told_as_its_signal(tmp_path):
    assert job(kills_itself, folder=tmp_path) == -signal.SIGKILL


def test_a_surprise_is_in_the_log(tmp_path):
    assert job(raises, folder=tmp_path) == 1
    assert "ValueError: surprise" in (tmp_path / "log").read_text()


def test_it_works_where_the_command_was_given(tmp_path):
    assert job(tells_where, folder=tmp_path) == 0
    assert (tmp_path / "here").exists()


def test_told_to_stop_it_stops_in_good_order(tmp_path):
    ready = tmp_path / "ready"
    assert job(waits_for_a_signal, ready, folder=tmp_path, stop=ready.exists) == 128 + signal.SIGTERM


def supervise_for_ever(folder):
    job(waits_for_a_signal, folder / "ready", folder=folder)


def test_without_its_supervisor_it_stops_by_itself(tmp_path):
    from tests.small_runs import FORKSERVER

    supervisor = FORKSERVER.Process(target=supervise_for_ever, args=(tmp_path,))
    supervisor.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    mine = children_in(tmp_path)
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.join()
    end = time.monotonic() + 20
    while children_in(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert mine
    assert not children_in(tmp_path)


def children_in(folder):
    """Return the processes that work in ``folder``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == folder and "Z" not in (entry / "stat").read_text().rpartition(")")[2][:3]:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


WORKER = """
import os, sys, time
from pathlib import Path
from proxlearn.jobs import launcher_setup
launcher_setup.POLL_SECONDS = 0.05
launcher_setup.end_with_parent(int(sys.argv[1]))
folder = Path(sys.argv[2])
(folder / "pid").write_text(str(os.getpid()))
if sys.argv[3] == "busy":
    with launcher_setup.JOB_RUNNING:
        while not launcher_setup.is_orphaned():
            time.sleep(0.01)
        time.sleep(0.5)
        (folder / "stored").touch()
time.sleep(600)
"""
COMMAND = (
    "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], str(os.getpid()), *sys.argv[2:]])"
)


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


@pytest.mark.parametrize("work", ["idle", "busy"])
def test_a_worker_ends_after_its_command(work, tmp_path):
    command = subprocess.Popen([sys.executable, "-c", COMMAND, WORKER, str(tmp_path), work])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.02)
    pid = int((tmp_path / "pid").read_text())
    time.sleep(0.3)
    assert is_alive(pid)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    end = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_alive(pid)
    assert (tmp_path / "stored").exists() == (work == "busy")


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


def subclasses(cls: type) -> set[type]:
    return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))


SPECIAL_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "StoppedBySignal": (15, "a problem", "a remedy"),
    "TableProblems": ("a.csv", [TableProblem("the column `a` has 2 missing values", {"dataset.missing": "median"})]),
}


def test_every_error_survives_a_worker_process() -> None:
    for module in pkgutil.walk_packages(pl.__path__, "proxlearn."):
        if module.name.split(".")[1] in ("core", "files", "run", "errors", "runs", "terminal", "config", "data"):
            importlib.import_module(module.name)
    classes = subclasses(pl.ProxlearnError)
    assert len(classes) > 8
    for cls in classes:
        error = cls(*SPECIAL_ARGUMENTS.get(cls.__name__, ("a problem", "a remedy")))
        error.detail = [1, 2]
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            copy = pickle.loads(pickle.dumps(error, protocol))
            assert type(copy) is cls
            assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
            assert copy.exit_code == error.exit_code
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        future = pool.submit(pl.losses.Huber, -1.0)
        with pytest.raises(pl.InputError, match="must be a finite number > 0"):
            future.result()
