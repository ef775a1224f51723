"""A signal before the first step stops a run immediately, and the results of a selection are kept."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from proxlearn.errors import StoppedBySignal
from proxlearn.run import result_files, selection
from proxlearn.run import train as set_up
from proxlearn.run.run_folder import list_candidates
from proxlearn.train_and_draw import train_and_draw
from proxlearn.training import successive_halving as halving
from proxlearn.training.stepper import Stepper
from tests.small_runs import assert_same_run, composed, run, small, status

QUICK_SECONDS = 2.0


def wait_long(*args, **kwargs):
    """Simulate minutes of work that receives a signal soon after its start; a library may catch every Exception."""
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            time.sleep(0.01)
        except Exception:
            continue
    raise AssertionError("the signal was not obeyed")


@pytest.mark.parametrize("module, slow", [(set_up, "build_experiment"), (selection, "select")])
def test_a_signal_before_the_first_step_ends_the_run_at_once(module, slow, tmp_path, monkeypatch):
    config = small(steps=5) if module is set_up else tuned()
    monkeypatch.setattr(module, slow, wait_long)
    began = time.monotonic()
    with pytest.raises(StoppedBySignal, match="the same command continues") as stopped:
        run(config, tmp_path)
    assert time.monotonic() - began < QUICK_SECONDS
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("first", [0, 7])
def test_a_signal_while_the_first_step_compiles_ends_the_session_at_once(first, tmp_path, monkeypatch):
    uninterrupted, stopped = tmp_path / "whole", tmp_path / "stopped"
    config = small(steps=20)
    run(config, uninterrupted)
    if first:
        run(replace(config, steps=first), stopped)
    began = time.monotonic()
    original = Stepper.__call__

    def slow(self, cloud):
        original(self, cloud)
        wait_long()

    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "__call__", slow)
        outcome = run(config, stopped)
    assert time.monotonic() - began < QUICK_SECONDS
    assert (outcome.signal, outcome.step, status(stopped)["state"]) == (signal.SIGTERM, first, "stopped")
    run(config, stopped)
    assert_same_run(stopped, uninterrupted)


@pytest.mark.parametrize("steps", [3, None])
def test_a_signal_during_the_final_scores_of_a_large_table_ends_the_session_at_once(steps, tmp_path, monkeypatch):
    """A stopped session scores only the rows of the logged metrics; a signal interrupts scores of more rows."""
    uninterrupted, stopped = tmp_path / "whole", tmp_path / "stopped"
    config = small(steps=5, metric_rows=4)
    run(config, uninterrupted)
    original, scored = result_files.write_figures, []

    def write_figures(folder, problem, parts, *rest):
        scored.append(max(map(len, parts.values())))
        if scored[-1] > 4:
            wait_long()
        original(folder, problem, parts, *rest)

    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(result_files, "write_figures", write_figures)
        if steps is not None:
            stop_after(steps, patch)
        outcome = run(config, stopped)
    assert time.monotonic() - began < QUICK_SECONDS
    assert (outcome.signal, status(stopped)["state"]) == (signal.SIGTERM, "stopped")
    assert outcome.step == (steps or 5)
    assert (scored[0] > 4) == (steps is None)
    assert run(config, stopped).signal is None
    assert_same_run(stopped, uninterrupted)


def test_a_stopped_session_ends_without_plots_and_the_next_one_draws_them(tmp_path, monkeypatch):
    config, folder = small(steps=6), tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        outcome = train_and_draw(config, folder, "train", verbose=False)
    assert (outcome.signal, outcome.step) == (signal.SIGTERM, 3)
    assert not list(folder.glob("*.png"))
    assert train_and_draw(config, folder, "train", verbose=False).signal is None
    assert (folder / "risk.png").exists()


def stop_after(step, patch):
    """Send a signal to this process after a number of steps."""
    original = Stepper.__call__

    def stepped(self, cloud):
        result = original(self, cloud)
        if result[0].step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    patch.setattr(Stepper, "__call__", stepped)


def tuned():
    return composed("dataset=sine", "recipe=tuned", "N=12", "dataset.points=24", "threads=1", "checkpoint_every=7")


def test_an_interrupted_selection_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    uninterrupted, stopped = tmp_path / "whole", tmp_path / "stopped"
    fits = []
    original = halving.fit

    def counted(*args, **kwargs):
        if len(fits) in interruptions:
            interruptions.remove(len(fits))
            wait_long()
        fits.append(kwargs["steps"])
        return original(*args, **kwargs)

    monkeypatch.setattr(halving, "fit", counted)
    interruptions: list[int] = []
    run(tuned(), uninterrupted)
    every = list(fits)
    fits.clear()
    interruptions += [0, 5, 10]
    for kept in (0, 5, 10):
        with pytest.raises(StoppedBySignal, match=rf"continues the selection \(candidate results stored: {kept}\)"):
            run(tuned(), stopped)
    run(tuned(), stopped)
    assert fits == every
    assert_same_run(stopped, uninterrupted)
    assert not list_candidates(stopped / "checkpoints")


def test_results_of_another_selection_are_not_used(tmp_path, monkeypatch):
    original = halving.fit
    count = 0

    def interrupted(*args, **kwargs):
        nonlocal count
        count += 1
        if count == 4:
            wait_long()
        return original(*args, **kwargs)

    monkeypatch.setattr(halving, "fit", interrupted)
    with pytest.raises(StoppedBySignal):
        run(tuned(), tmp_path)
    kept = sorted(list_candidates(tmp_path / "checkpoints"))
    # One candidate's result under another's name, and a damaged one.
    kept[0].write_bytes(kept[1].read_bytes())
    kept[2].write_bytes(kept[2].read_bytes()[:-5])
    count = -100
    run(tuned(), tmp_path)
    fresh = tmp_path / "fresh"
    run(tuned(), fresh)
    assert (tmp_path / "metrics.csv").read_bytes() == (fresh / "metrics.csv").read_bytes()


STUCK = """
import contextlib, hashlib, sys
from proxlearn.run.signals import StopRequest
with StopRequest() as stop, stop.interruptible() if sys.argv[1] == "1" else contextlib.nullcontext():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.mark.parametrize("number, needed", [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_a_signal_ends_work_in_a_library_that_does_not_return(number, needed):
    """Python's handlers wait for the library, for minutes here; work that is not interruptible needs two signals."""
    command = [sys.executable, "-c", STUCK, str(needed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    # The call of the library follows the line.
    time.sleep(0.5)
    if needed == 2:
        process.send_signal(number)
        time.sleep(QUICK_SECONDS)
        assert process.poll() is None
    began = time.monotonic()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - began < QUICK_SECONDS
    assert (process.returncode, stderr) == (128 + number, "proxlearn: stopped; the same command continues the run\n")
