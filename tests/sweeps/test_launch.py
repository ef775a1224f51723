"""Sweeps as a user starts them: failed or killed jobs stop no others, and the same command completes the rest."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxlearn.cli import main
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import SweepFolder
from tests.small_runs import proxlearn

SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "checkpoint_every=500"]
ENDLESS = 10_000_000


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def the_sweep():
    (folder,) = Path("outputs/sweeps").absolute().iterdir()
    return SweepFolder(folder)


def table():
    with (the_sweep().path / "summary.csv").open() as file:
        return list(csv.DictReader(file))


def states():
    return [row["state"] for row in table()]


def starts():
    """Return when the newest session of each run started, to the nanosecond, from the time of its config."""
    return {path.parent.name: path.stat().st_mtime_ns for path in Path("outputs/sine").glob("*/config.yaml")}


def when_running(number, act):
    """Call ``act`` in the background with the process id of a job, once it is past its first checkpoint."""

    def watch():
        end = time.monotonic() + 300
        while time.monotonic() < end:
            time.sleep(0.05)
            # A folder that is being made has no plan yet.
            if not list(Path("outputs").glob("sweeps/*/sweep.yaml")):
                continue
            for seen in the_sweep().look():
                if seen.job.number == number and seen.state == "running" and seen.run.newest and seen.run.step:
                    act(seen.run.pid)
                    return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_one_fails_one_is_killed_the_rest_finish_and_the_same_command_does_only_what_is_missing(capfd):
    words = ["train", "-m", *SMALL, "h=1e-4,1e38", "beta=0.1,-1,0.2", f"steps={ENDLESS}", "seed=0"]
    killer = when_running(0, lambda pid: os.kill(pid, signal.SIGKILL))
    stopper = when_running(2, lambda pid: os.kill(pid, signal.SIGKILL))
    assert main(words) == 1
    killer.join()
    stopper.join()
    assert states() == ["killed", "invalid", "killed", "failed", "invalid", "failed"]
    shown = capfd.readouterr().out
    assert "its process was killed by SIGKILL" in shown
    assert " is not finite after step " in shown
    assert "beta must be a finite number > 0, got -1" in shown

    # What was killed goes on from its checkpoint when asked for no more steps than it needs.
    steps = 2 * max(int(row["step"] or 0) for row in table()) + 1000
    words = [word if not word.startswith("steps=") else f"steps={steps}" for word in words]
    assert main(words) == 1
    assert states() == ["finished", "invalid", "finished", "failed", "invalid", "failed"]
    logs = [path.read_text() for path in Path("outputs/sine").glob("*-beta0.1-*/train.log")]
    assert any(f"to {steps}" in text and f"from step 0 to {steps}" not in text for text in logs)

    before = starts()
    assert main(words) == 1
    after = starts()
    assert {name for name in before if before[name] != after[name]} == {
        Path(row["folder"]).name for row in table() if row["state"] == "failed"
    }
    assert (the_sweep().path / "curves_risk.png").exists()


def test_a_signal_stops_the_sweep_and_the_same_command_goes_on(capfd):
    words = ["train", "-m", *SMALL, "beta=0.1,0.2"]
    stopper = when_running(0, lambda pid: os.kill(os.getpid(), signal.SIGINT))
    assert main([*words, f"steps={ENDLESS}"]) == 130
    stopper.join()
    assert states() == ["stopped", "skipped"]
    assert "the same command continues it" in capfd.readouterr().err
    reached = int(table()[0]["step"])
    assert main([*words, f"steps={reached + 5}"]) == 0
    assert states() == ["finished", "finished"]
    before = starts()
    assert main([*words, f"steps={reached + 5}", "hydra/launcher=submitit_local"]) == 0
    assert starts() == before


def test_a_run_that_has_gone_further_than_asked_is_taken_and_said(capfd):
    assert main(["train", *SMALL, "beta=0.05", "steps=60"]) == 0
    assert main(["train", "-m", *SMALL, "beta=0.05,0.07", "steps=20"]) == 0
    said = "job 0 (beta=0.05) is already at step 60, beyond steps=20; its result is used unchanged"
    assert capfd.readouterr().err.count(said) == 1
    assert [row["step"] for row in table()] == ["60", "20"]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_sweep_with_other_settings_into_the_same_folders_gets_no_figures_of_the_first(capfd):
    """The second sweep is rejected job by job; with overwrite=true, the table of the first sweep says so."""
    named = ["hydra.sweep.dir=s", "hydra.sweep.subdir=seed${seed}", "steps=3", "seed=0,1"]
    assert main(["train", "-m", *SMALL, *named, "beta=0.1"]) == 0
    (first,) = Path("s/sweeps").absolute().iterdir()
    before = contents(Path("s"))
    assert main(["train", "-m", *SMALL, *named, "beta=0.2"]) == 2
    remedy = "choose another folder, or set overwrite=true (`fit`: --set overwrite=true)"
    assert f"contains a run with other settings; {remedy}" in capfd.readouterr().err
    assert contents(Path("s")) == before
    assert main(["train", *SMALL, "steps=3", "seed=1", "beta=0.2", "hydra.run.dir=s/seed1", "overwrite=true"]) == 0
    seen = SweepFolder(first).look()
    assert [state.state for state in seen] == ["finished", "failed"]
    assert seen[1].error == "its folder contains a run with other settings"
    assert seen[1].run is None


def test_all_jobs_fail_and_each_reason_is_told(capfd):
    words = ["train", "-m", "dataset=csv", "dataset.path=nofile.csv", "dataset.target=y", "N=8", "steps=2", "seed=0,1"]
    assert main(words) == 1
    shown = capfd.readouterr()
    assert "Traceback" not in shown.err
    assert shown.out.count("dataset.path: the file nofile.csv does not exist") == 2
    assert "2 jobs: 2 failed" in shown.out
    assert states() == ["failed", "failed"]
    assert main(["plot", str(the_sweep().path)]) == 0
    assert not list(Path("outputs").glob("csv/*"))


def test_a_sweep_with_bad_input_and_overwrite_changes_no_run(capfd):
    named = ["hydra.sweep.dir=s", "hydra.sweep.subdir=seed${seed}", "steps=3", "seed=0,1"]
    assert main(["train", "-m", *SMALL, *named]) == 0
    runs = [Path("s/seed0"), Path("s/seed1")]
    before = [contents(folder) for folder in runs]
    bad = ["dataset=csv", "dataset.path=nofile.csv", "dataset.target=y", "N=8", "threads=1"]
    assert main(["train", "-m", *bad, *named, "overwrite=true"]) == 1
    assert "Traceback" not in capfd.readouterr().err
    assert [contents(folder) for folder in runs] == before


def test_fail_fast_ends_the_sweep_at_the_first_failure():
    assert main(["train", "-m", *SMALL, "h=1e38,1e-4", "steps=5", "fail_fast=true"]) == 1
    assert states() == ["failed", "skipped"]


@pytest.mark.slow
def test_joblib_survives_the_death_of_a_worker():
    """joblib gives up if a worker is killed; the unfinished jobs are launched once more."""
    words = ["train", "-m", *SMALL, "beta=0.1,0.2", f"steps={ENDLESS}", "hydra/launcher=joblib"]

    def kill_worker(pid):
        # The job's parent is its fork server, whose parent is the worker.
        os.kill(parent_of(parent_of(pid)), signal.SIGKILL)
        time.sleep(1)
        when_running(0, lambda pid: os.kill(os.getpid(), signal.SIGTERM))

    when_running(0, kill_worker)
    assert main(words) == 143
    assert set(states()) <= {"stopped", "skipped"}
    steps = max(int(row["step"] or 0) for row in table()) + 5
    assert main([word if "steps=" not in word else f"steps={steps}" for word in words]) == 0


@pytest.mark.slow
def test_joblib_workers_end_when_the_command_is_killed():
    """Running jobs store a checkpoint first, and no process of the command remains."""
    words = [*SMALL, "beta=0.1,0.2,0.3", f"steps={ENDLESS}", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    command = [sys.executable, "-m", "proxlearn", "train", "-m", *words]
    with subprocess.Popen(command, start_new_session=True) as started:
        when_running(0, lambda pid: started.kill()).join()
    assert nobody_is_left(started.pid)
    seen = the_sweep().look()
    assert seen[0].state == "stopped"
    assert [state.state for state in seen].count("running") == 0


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_two_sweeps_started_together_do_what_they_share_once():
    """Two commands run in two terminals; each starts with a job that the other also has."""
    words = ["train", "-m", *SMALL, "steps=2000"]
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(proxlearn, *words, f"seed={seeds}") for seeds in ("0,1,2", "2,1,3")]
    assert [each.result().returncode for each in both] == [0, 0]
    for folder in Path("outputs/sweeps").absolute().iterdir():
        assert [seen.state for seen in SweepFolder(folder).look()] == ["finished"] * 3
    runs = {RunFolder(path).read_config().seed: path for path in Path("outputs/sine").iterdir()}
    assert sorted(runs) == [0, 1, 2, 3]
    for path in runs.values():
        sessions = [line for line in (path / "train.log").read_text().splitlines() if " from step " in line]
        assert len(sessions) == 1
        assert "from step 0 to 2000" in sessions[0]
    # What two commands waited for and looked at is what one alone makes.
    assert main(["train", *SMALL, "steps=2000", "seed=1", "hydra.run.dir=alone"]) == 0
    for name in ("metrics.csv", "accuracy.csv"):
        assert (runs[1] / name).read_bytes() == Path("alone", name).read_bytes()


STEPS = ",".join(["1e38", *(f"{i}e-5" for i in range(1, 12))])
"""Twelve step sizes; the first leaves the finite range at once."""


def nobody_is_left(session):
    """Return whether all processes end within seconds, after helpers and their parents have noticed."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_twelve_jobs_one_failing_one_killed(launcher):
    """The sweep is started as a user starts it, and the kill comes from outside."""
    words = ["dataset=sine", "N=100", "dataset.points=30", "steps=4000", f"h={STEPS}", f"hydra/launcher={launcher}"]
    command = [sys.executable, "-m", "proxlearn", "train", "-m", *words]
    killer = when_running(4, lambda pid: os.kill(pid, signal.SIGKILL))
    # A session of its own: whoever stays behind is found by it.
    with subprocess.Popen(command, start_new_session=True) as started:
        assert started.wait() == 1
    killer.join()
    assert nobody_is_left(started.pid)
    assert states() == ["failed", *["finished"] * 3, "killed", *["finished"] * 7]
    reasons = [row["error"] for row in table() if row["error"]]
    assert reasons[0].startswith("theta is not finite after step ")
    assert reasons[1] == "its process was killed by SIGKILL"
    before = starts()
    assert subprocess.run(command).returncode == 1
    assert states() == ["failed", *["finished"] * 11]
    again = {Path(row["folder"]).name for row in table() if row["job"] in ("0", "4")}
    after = starts()
    assert {name for name in before if before[name] != after[name]} == again
