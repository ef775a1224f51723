"""Every observer is called at the start, after each step and at the end, and reads an exact state.

The state of a run, derived from its status and its lock.

The estimated time left is based on steps, not on the compilation in the first step.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import sys
import time

import pytest
import torch
from tqdm import tqdm

from proxlearn.cli import main
from proxlearn.core.compile_time import COMPILE_TIME
from proxlearn.core.sharding import undivided
from proxlearn.run import loop_state, progress, training_loop
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.run.lock import FolderLock, is_locked
from proxlearn.run.loop_state import Observer, RunState
from proxlearn.run.metrics import proximal_figures
from proxlearn.run.observed_status import SILENT_SECONDS, take_snapshot
from proxlearn.run.progress import Progress, StepRate
from proxlearn.run.signals import StopRequest
from proxlearn.training.iterate import iterate
from proxlearn.training.stepper import Stepper
from tests.conftest import config_of
from tests.small_runs import FORKSERVER, assert_same_run, run, small, status


class Recorder(Observer):
    """An observer that records the calls, with the step and whether a row is logged."""

    def __init__(self, folder, logger):
        self.calls = CALLS

    def start(self, state):
        self.calls.append(("start", state.step))

    def after_step(self, state):
        self.calls.append((state.step, state.row is not None))

    def finish(self, state):
        self.calls.append(("finish", state.step))


CALLS: list = []


@pytest.fixture
def calls(monkeypatch):
    """Return the calls of an observer that replaces the last one."""
    CALLS.clear()
    monkeypatch.setattr(training_loop, "LoggerRows", Recorder)
    return CALLS


def test_the_diagnostics_of_a_large_divided_cloud_are_freed_after_their_metrics_are_computed(monkeypatch):
    """They contain the cloud before the step, which the next step does not need."""
    experiment = build_experiment(config_of("dataset=sine", "N=40", "steps=5"))
    for large in (41, 40):
        monkeypatch.setattr(loop_state, "LARGE", large)
        state = RunState(experiment, first_checkpoint(experiment), undivided(40))
        cloud, info = next(iterate(experiment.source, state.cloud, experiment.hyper, generator=state.generator))
        expected = proximal_figures(info)
        state.update(cloud, info)
        state.release_info()
        assert (state.info is None) == (large == 40)
        assert state.proximal_figures() == expected


def test_a_new_run_reports_step_zero_and_a_continued_one_does_not(tmp_path, calls):
    run(small(steps=4, log_every=2), tmp_path)
    assert calls == [("start", 0), (0, True), (1, False), (2, True), (3, False), (4, True), ("finish", 4)]
    calls.clear()
    run(small(steps=6, log_every=2), tmp_path)
    assert calls == [("start", 4), (5, False), (6, True), ("finish", 6)]


def test_the_last_step_is_logged_off_the_schedule(tmp_path, calls):
    run(small(steps=3, log_every=2), tmp_path)
    assert calls[-2:] == [(3, True), ("finish", 3)]


def test_a_failing_observer_ends_the_session_without_the_end_of_the_others(tmp_path, monkeypatch):
    class Failing(Recorder):
        def after_step(self, state):
            if state.step == 7:
                raise RuntimeError("broken")

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(small(steps=12), whole)
    with monkeypatch.context() as patch:
        patch.setattr(training_loop, "LoggerRows", Failing)
        with pytest.raises(RuntimeError, match="broken"):
            run(small(steps=12), broken)
    assert status(broken)["state"] == "failed"
    run(small(steps=12), broken)
    assert_same_run(broken, whole)


def test_the_state_counts_unmet_tolerances_and_marks_a_switch_of_precision():
    experiment = build_experiment(small("device.dtype=float32", steps=5, tolerance="log", delta=1e-30, L=1))
    state = RunState(experiment, first_checkpoint(experiment))
    assert state.is_new
    assert state.proximal_figures() is None
    stepper = Stepper(experiment.source, experiment.hyper, "eager", 1, state.generator)
    state.update(*stepper(state.cloud))
    assert (state.step, state.checkpoint.unmet, state.checkpoint.switched_at) == (1, 1, None)
    figures = state.proximal_figures()
    assert figures is not None
    assert figures["converged"] is False
    wide = state.cloud.to("cpu", torch.float64)
    state.update(*stepper(wide))
    assert (state.step, state.checkpoint.unmet, state.checkpoint.switched_at) == (2, 2, 2)
    assert state.experiment.problem.samples.X.dtype == torch.float64


def test_a_slow_step_is_interrupted_and_a_fast_one_is_completed():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()

    def steps():
        yield "first"
        torch.rand(3, generator=generator)
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.01)
        yield "second"

    with StopRequest() as stop:
        results = list(training_loop.until_stopped(steps(), generator, stop))
    # The first step was fast, so the second one is completed although a signal came.
    assert results == ["first", "second"]
    assert not torch.equal(generator.get_state(), before)
    generator.set_state(before)
    with StopRequest() as stop, pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop, "SLOW_SECONDS", 0.0)
        results = list(training_loop.until_stopped(steps(), generator, stop))
    assert results == ["first"]
    assert torch.equal(generator.get_state(), before)


def set_status(folder, **values):
    (folder / "status.json").write_text(json.dumps(status(folder) | values))


def hold(folder):
    with FolderLock(folder):
        (folder / "held").touch()
        time.sleep(60)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run(small(steps=10), folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    for name in ("status.json", "metrics.csv"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    return tmp_path


def test_a_finished_run_gives_its_metrics(folder):
    snapshot = take_snapshot(folder)
    assert (snapshot.state, snapshot.step, snapshot.steps) == ("finished", 10, 10)
    newest = (folder / "metrics.csv").read_text().splitlines()[-1].split(",")
    assert repr(snapshot.newest["test_risk_weighted"]) in newest
    assert snapshot.rate == pytest.approx(10 / status(folder)["seconds"])


def test_running_with_a_held_lock_is_running_and_after_a_kill_dead(folder):
    set_status(folder, state="running", step=4, seconds=60.0, rate=2.0)
    other = FORKSERVER.Process(target=hold, args=(folder,))
    other.start()
    while not (folder / "held").exists():
        time.sleep(0.01)
    assert is_locked(folder) is True
    assert take_snapshot(folder).state == "running"
    assert take_snapshot(folder).seconds_left == pytest.approx(3.0)
    # While the first step waits for its compilation, the rate is unknown.
    set_status(folder, step=1, seconds=60.0, rate=None)
    assert take_snapshot(folder).seconds_left is None
    # A run of version 0.1.0 stores its seconds only.
    old = status(folder) | {"step": 4, "seconds": 2.0}
    del old["rate"]
    (folder / "status.json").write_text(json.dumps(old))
    assert take_snapshot(folder).seconds_left == pytest.approx(3.0)
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert (folder / ".lock").exists()
    assert take_snapshot(folder).state == "dead"


def test_on_another_machine_an_old_status_means_dead(folder):
    set_status(folder, state="running", host="not-" + platform.node())
    assert take_snapshot(folder).state == "running"
    long_ago = time.time() - SILENT_SECONDS - 5
    os.utime(folder / "status.json", (long_ago, long_ago))
    assert take_snapshot(folder).state == "dead"


@pytest.mark.parametrize("ahead", [SILENT_SECONDS + 5, 3600, 10 * 365 * 86400])
@pytest.mark.parametrize("locked", [False, True])
def test_a_time_stamp_in_the_future_does_not_mean_running(ahead, locked, folder):
    # A host that was renamed, simulated by another name in the status; its clock was wrong.
    set_status(folder, state="running", host="not-" + platform.node())
    if locked:
        (folder / ".lock").touch()
    os.utime(folder / "status.json", (time.time() + ahead, time.time() + ahead))
    assert take_snapshot(folder).state == "dead"
    # Clocks of machines differ a little.
    os.utime(folder / "status.json", (time.time() + 30, time.time() + 30))
    assert take_snapshot(folder).state == "running"


def test_an_incomplete_row_is_ignored(folder):
    before = take_snapshot(folder).newest
    with (folder / "metrics.csv").open("a") as file:
        file.write("11,0.5,0.")
    assert take_snapshot(folder).newest == before


MALFORMED = ["", "{", "[]", '{"state": 3}', '{"step": "x", "state": "finished"}', '{"step": 1e400}']


@pytest.mark.parametrize("content", MALFORMED)
def test_a_malformed_status_is_unreadable(folder, content):
    (folder / "status.json").write_text(content)
    assert take_snapshot(folder).state == "unreadable"


def test_a_snapshot_does_not_keep_a_run_from_starting(tmp_path):
    for _ in range(200):
        with FolderLock(tmp_path):
            assert is_locked(tmp_path) is True
        assert is_locked(tmp_path) is False


def test_status_names_the_step_of_its_metrics(folder, capsys):
    """The status of a failed run is up to two seconds older than its rows."""

    def status_table():
        assert main(["status", str(folder)]) == 0
        head, line, blank, note = capsys.readouterr().out.splitlines()
        assert (blank, note.partition(":")[0]) == ("", "kappa = beta epsilon / h")
        return head.split(), line.split()

    assert "logged" not in status_table()[0]
    set_status(folder, state="failed", step=3, error="it")
    head, line = status_table()
    assert (line[head.index("step")], line[head.index("logged")]) == ("3", "10")


STEPS = 100_000


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a first step that waits for a compilation."""
    monkeypatch.setattr(COMPILE_TIME, "seconds", COMPILE_TIME.seconds)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)


def first_step() -> None:
    time.sleep(0.3)
    COMPILE_TIME.seconds += 0.3


@pytest.mark.usefixtures("compiling")
def test_steps_that_wait_for_a_compilation_do_not_count() -> None:
    pace = StepRate(0)
    first_step()
    pace.advance(1)
    assert pace.rate == 0
    for step in range(2, 7):
        time.sleep(0.002)
        pace.advance(step)
    assert 5 / 0.15 < pace.rate <= 500


@pytest.mark.usefixtures("compiling")
def test_lines_of_a_log_give_no_time_left_before_they_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(STEPS, 0) as shown:
        first_step()
        shown.advance(1)
        for step in range(2, 7):
            time.sleep(0.002)
            shown.advance(step)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"step 1/{STEPS}"
    assert "left" in lines[-1]
    rate = re.search(r"([\d.]+) rec/s", lines[-1])
    assert rate is not None
    assert float(rate[1]) > 5 / 0.15


@pytest.mark.usefixtures("compiling")
def test_a_bar_s_clock_stands_still_while_passes_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """This simulates a terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(STEPS, 0) as shown:
        assert isinstance(shown.bar, tqdm)
        first_step()
        shown.advance(1)
        assert shown.bar.format_dict["elapsed"] < 0.2
