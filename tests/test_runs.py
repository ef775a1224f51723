"""Runs from Python: the bits of the command, callbacks, no side effects in the process, and reading a folder."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from small_runs import assert_same_run, proxlearn

import proxlearn as pl
from proxlearn.predict.model import load_model
from proxlearn.runs import StepEvent

SINE = ("dataset=sine", "N=8", "dataset.points=10", "threads=1", "checkpoint_every=5", "steps=30", "log_every=7")


def in_folder(name: str) -> str:
    return f"hydra.run.dir={name}"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def reference() -> pl.Run:
    """The uninterrupted run."""
    return pl.train(*SINE, in_folder("reference"), plots=False, verbose=False)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> pl.Run:
    folder = tmp_path_factory.mktemp("wdbc") / "run"
    words = ("dataset=wdbc", "N=20", "steps=12", "threads=1", in_folder(str(folder)))
    return pl.train(*words, plots=False, verbose=False)


def test_a_run_has_the_bits_of_the_command(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SINE, in_folder("command")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    completed = proxlearn("train", *words, env=environment)
    assert completed.returncode == 0, completed.stderr
    run = pl.train(*SINE, in_folder("python"), callbacks=[lambda event: None])
    assert_same_run(run.folder, own_folder / "command")
    drawn = {path.name for path in (own_folder / "command").iterdir()}
    assert {path.name for path in run.folder.iterdir()} == drawn
    assert "risk.png" in drawn
    assert "finished at step 30" in capsys.readouterr().out
    assert run.state == "finished"


def test_nothing_is_printed_or_drawn_where_it_is_not_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    run = pl.train(*SINE, plots=False, verbose=False)
    assert run.folder.parent == Path.cwd() / "outputs" / "sine"
    assert not list(run.folder.glob("*.png"))
    assert capfd.readouterr() == ("", "")


def test_a_callback_sees_every_step_with_its_row(reference: pl.Run) -> None:
    events: list[StepEvent] = []
    run = pl.train(*SINE, in_folder("seen"), callbacks=[events.append], plots=False, verbose=False)
    assert_same_run(run.folder, reference.folder)
    assert [event.step for event in events] == list(range(31))
    assert [event.cloud.step for event in events] == list(range(31))
    assert events[0].info is None
    assert all(isinstance(event.info, pl.Info) for event in events[1:])
    logged = [event.step for event in events if event.row is not None]
    assert logged == run.metrics["step"].tolist()
    assert logged != list(range(31))
    assert events[-1].row is not None
    assert events[-1].row["train_risk_weighted"] == run.metrics["train_risk_weighted"].iloc[-1]
    pl.train(*SINE, in_folder("seen"), callbacks=[events.append], plots=False, verbose=False)
    assert len(events) == 31, "a finished run makes no step"


@pytest.mark.parametrize("last", [0, 1, 13, 30])
def test_a_run_that_a_callback_stopped_resumes_exactly(reference: pl.Run, last: int) -> None:
    def stop(event: StepEvent) -> bool:
        return event.step >= last

    stopped = pl.train(*SINE, in_folder("stopped"), callbacks=[stop], plots=False, verbose=False)
    assert (stopped.state, stopped.step) == ("finished" if last == 30 else "stopped", last)
    assert max(stopped.clouds) == last
    continued = pl.train(*SINE, in_folder("stopped"), plots=False, verbose=False)
    assert_same_run(continued.folder, reference.folder)


def test_a_callback_may_need_gradients_and_may_fail(reference: pl.Run) -> None:
    def fail(event: StepEvent) -> None:
        theta = event.cloud.theta.clone().requires_grad_()
        theta.square().sum().backward()
        assert theta.grad is not None
        if event.step == 12:
            raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        pl.train(*SINE, in_folder("failed"), callbacks=[fail], plots=False, verbose=False)
    run = pl.load_run("failed")
    assert run.state == "failed"
    continued = pl.train(*SINE, in_folder("failed"), plots=False, verbose=False)
    assert_same_run(continued.folder, reference.folder)


def test_ctrl_c_stores_the_run_and_then_interrupts_the_program(reference: pl.Run) -> None:
    def interrupt(event: StepEvent) -> None:
        if event.step == 9:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pl.train(*SINE, in_folder("stopped"), callbacks=[interrupt], plots=False, verbose=False)
    assert (pl.load_run("stopped").state, pl.load_run("stopped").step) == ("stopped", 9)
    continued = pl.train(*SINE, in_folder("stopped"), plots=False, verbose=False)
    assert_same_run(continued.folder, reference.folder)


def open_files() -> set[str]:
    descriptors = Path("/proc/self/fd")
    names = (
        {os.readlink(path) for path in descriptors.iterdir() if path.is_symlink()} if descriptors.exists() else set()
    )
    return {name for name in names if str(Path.cwd()) in name}


def process_state() -> tuple[object, ...]:
    handlers = tuple(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
    others = (tuple(logging.getLogger().handlers), matplotlib.get_backend(), os.getcwd(), tuple(sys.argv))
    return (torch.get_num_threads(), handlers, torch.is_grad_enabled(), frozenset(open_files()), *others)


def test_it_leaves_no_trace_in_the_process() -> None:
    before = process_state()
    for seed in (0, 1):
        pl.train(*SINE, f"seed={seed}", "threads=2", verbose=False)
        assert process_state() == before
        assert not GlobalHydra.instance().is_initialized()
    with pytest.raises(pl.InputError):
        pl.train(*SINE, "betta=1")
    assert process_state() == before
    assert not GlobalHydra.instance().is_initialized()


def test_it_runs_inside_a_program_that_uses_hydra_itself(own_folder: Path) -> None:
    (own_folder / "theirs").mkdir()
    (own_folder / "theirs" / "main.yaml").write_text("key: 3\n")
    with initialize_config_dir(str(own_folder / "theirs"), version_base="1.3"):
        assert pl.train(*SINE, plots=False, verbose=False).step == 30
        assert compose("main").key == 3
    assert not GlobalHydra.instance().is_initialized()


def test_it_runs_in_a_thread() -> None:
    runs: list[pl.Run] = []
    thread = threading.Thread(target=lambda: runs.append(pl.train(*SINE, plots=False, verbose=False)))
    thread.start()
    thread.join()
    assert runs[0].state == "finished"


@pytest.mark.parametrize(
    "words, message",
    [
        (("betta=1",), "unknown key `betta`"),
        (("dataset=wdcb",), "wdcb"),
        (
            ("-m", "dataset=sine", "beta=0.1,0.2"),
            "a sweep has many runs, but train returns only one; call train in a loop",
        ),
        (("--cfg", "job"), "print information instead of starting a run"),
        ((0.05,), 'command-line arguments as strings, got 0.05; write "beta=0.05"'),
    ],
)
def test_wrong_words_raise_and_create_nothing(own_folder: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(pl.InputError, match=message):
        pl.train(*words)
    assert list(own_folder.iterdir()) == []


def test_a_callback_must_be_callable(own_folder: Path) -> None:
    with pytest.raises(pl.InputError, match="is not callable"):
        pl.train(*SINE, callbacks=[3])  # type: ignore[list-item]
    assert list(own_folder.iterdir()) == []


def test_a_run_that_diverges_raises_run_error() -> None:
    with pytest.raises(pl.RunError, match="not finite"):
        pl.train(*SINE, "h=1e30", plots=False, verbose=False)


def test_a_folder_is_read_as_it_is(reference: pl.Run) -> None:
    run = pl.load_run("reference")
    assert repr(run) == "Run('reference', finished at step 30)"
    assert run.config["dataset"]["name"] == "sine"
    table = pd.read_csv(run.folder / "metrics.csv")
    assert run.metrics["step"].tolist() == table["step"].tolist()
    assert run.metrics["ess"].tolist() == table["ess"].tolist()
    steps = list(run.clouds)
    assert steps == sorted(steps)
    assert steps[-1] == 30
    assert len(run.clouds) == len(steps)
    assert run.clouds[30].step == run.cloud.step == 30
    assert torch.equal(run.clouds[30].theta, run.cloud.theta)
    assert run.clouds.get(29) is None
    assert 30 in run.clouds
    for kind in (KeyError, pl.InputError):
        with pytest.raises(kind, match="has no checkpoint of step 29; choose from "):
            run.clouds[29]
    (run.folder / "checkpoints" / "cloud-000000030.safetensors").write_bytes(b"damaged")
    with pytest.raises(pl.InputError, match=r"cloud-000000030\.safetensors is not a checkpoint of this run"):
        run.clouds[30]
    assert run.cloud.step == steps[-2]


def test_predictions_are_those_of_the_model(classes: pl.Run) -> None:
    model = load_model(classes.folder)
    X = np.random.default_rng(0).normal(size=(7, len(model.columns))) * 10
    expected = model.predict(X)
    assert classes.predict(X).tolist() == [model.classes[i] for i in expected.predicted]
    np.testing.assert_array_equal(classes.predict_proba(X), expected.probabilities)
    shuffled = pd.DataFrame(X, columns=list(model.columns))[list(reversed(model.columns))]
    np.testing.assert_array_equal(classes.predict_proba(shuffled), expected.probabilities)
    unweighted = model.predict(X, "unweighted").probabilities
    np.testing.assert_array_equal(classes.predict_proba(X, estimate="unweighted"), unweighted)
    assert classes.classes == model.classes


WRONG_ROWS: list[tuple[object, str]] = [
    (np.zeros((3, 4)), r"X has the shape \(3, 4\) instead of \(n, 30\)"),
    ([["a"] * 30], "not a matrix of numbers"),
    (np.full((2, 30), np.nan), "row 0 of X contains a number that is not finite"),
    (pd.DataFrame({"a": [1.0]}), "X has no column"),
]


@pytest.mark.parametrize("X, message", WRONG_ROWS)
def test_rows_that_do_not_fit_are_refused(classes: pl.Run, X: object, message: str) -> None:
    with pytest.raises(pl.InputError, match=message):
        classes.predict(X)


def test_questions_that_a_run_cannot_answer_are_refused(reference: pl.Run, own_folder: Path) -> None:
    assert reference.predict([[0.5]]).shape == (1,)
    with pytest.raises(pl.InputError, match="a real number, which has no classes; use predict"):
        reference.predict_proba([[0.5]])
    with pytest.raises(pl.InputError, match="unknown estimate 'median'"):
        reference.predict([[0.5]], estimate="median")
    with pytest.raises(pl.InputError, match="the folder nowhere does not exist"):
        pl.load_run("nowhere")
    (own_folder / "empty").mkdir()
    with pytest.raises(pl.InputError, match="is not a run folder"):
        pl.load_run("empty")
