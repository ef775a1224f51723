"""Every observer is called at the start, after each step and at the end, and reads an exact state."""

import signal
import time

import pytest
import torch
from small_runs import assert_same_run, run, small, status

from proxlearn.run import training_loop
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.run.loop_state import Observer, RunState
from proxlearn.run.signals import StopRequest
from proxlearn.training.stepper import Stepper


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
