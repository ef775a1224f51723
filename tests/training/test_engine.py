"""Reports of compilation depend on what Numba compiled, not on the duration of a step.

The bits of compiled steps do not depend on torch's threads, and the threads of steps in plain torch do not vary.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from proxlearn import Risk, init
from proxlearn.core.cloud import PointCloud
from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.hyper import Hyper
from proxlearn.training import engine
from proxlearn.training.engine import CompilationReport
from proxlearn.training.iterate import iterate
from proxlearn.training.thread_choice import ThreadChoice


def triple(x):  # type: ignore[no-untyped-def]
    return 3 * x


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engine, "LONG_SECONDS", 0.001)


@pytest.mark.usefixtures("own_cache")
def test_a_slow_step_is_not_called_compilation(capsys: pytest.CaptureFixture[str]) -> None:
    with CompilationReport():
        time.sleep(0.01)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("own_cache")
def test_compilation_is_announced_and_a_loaded_pass_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with CompilationReport():
        compile_pass()(triple)(1)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "proxlearn: compiling the fused engine (once per kind of problem, version and processor) ..."
    assert second.endswith("later runs load the compiled code from the cache")
    with CompilationReport():
        compile_pass()(triple)(1)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("own_cache")
def test_code_that_cannot_be_kept_is_not_promised_to_later_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with CompilationReport():
        compile_pass()(triple)(1)
    said = capsys.readouterr().err
    assert "compiled code cannot be cached" in said
    assert "XDG_CACHE_HOME" in said
    assert "later runs" not in said


@pytest.fixture
def torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


HYPER = Hyper(beta=1.0, h=1e-3, epsilon=0.5, drift="first_variation", prox_potential="first_variation")


def last_cloud(risk: Risk, N: int, threads: int, **changes: Any) -> PointCloud:
    torch.set_num_threads(threads)
    generator, hyper = torch.Generator().manual_seed(2), Hyper(**(vars(HYPER) | changes))
    steps = iterate(risk, init(risk, N=N), hyper, generator=generator, until=3, engine="fused", threads=threads)
    return deque(steps, maxlen=1)[0][0]


CASES: dict[str, tuple[int, int, dict[str, Any], dict[str, Any]]] = {
    "softmax": (60, 100, {"loss": "cross_entropy"}, {}),
    "sigmoid": (70_001, 10, {"loss": "logistic"}, {}),
    "fisher_rao": (20, 70_001, {}, {"weights": "fisher_rao"}),
    "resampling": (20, 70_001, {}, {"weights": "fisher_rao", "resample": "systematic", "ess_threshold": 1.0}),
}


@pytest.mark.usefixtures("torch_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_the_bits_do_not_depend_on_torch_s_threads(case: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """With two threads, torch rounds these functions and sums differently."""
    n, N, parts, changes = CASES[case]
    X, y = torch.randn(n, 3, generator=generator, dtype=dtype), torch.arange(n) % (3 if case == "softmax" else 2)
    risk = Risk(X, y, **parts)
    one, two = (last_cloud(risk, N, threads, **changes) for threads in (1, 2))
    assert torch.equal(one.theta, two.theta)
    assert torch.equal(one.log_rho, two.log_rho)


@pytest.mark.usefixtures("torch_threads")
@pytest.mark.parametrize("neuron, threads_of_drift", [("relu", 2), ("tanh", 1)])
def test_the_load_does_not_change_the_threads_of_a_drift_in_plain_torch(
    neuron: str, threads_of_drift: int, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    """The bits of matrix products depend on that number, so a run would depend on the load of the machine."""
    risk = Risk(torch.randn(30, 3, generator=generator), torch.arange(30) % 2, neuron=neuron)
    torch.set_num_threads(2)
    step = engine.CompiledStep(risk, HYPER, 20, 2)
    used, drift = [], step.fused_step.drift

    def recorded(*arguments: Any) -> tuple[Tensor, Any]:
        used.append(torch.get_num_threads())
        return drift(*arguments)

    monkeypatch.setattr(step.fused_step, "drift", recorded)
    monkeypatch.setattr(ThreadChoice, "record", lambda self, seconds: setattr(self, "threads", 1))
    cloud = init(risk, N=20)
    for _ in range(3):
        noise, z0 = torch.randn(cloud.theta.shape, generator=generator), torch.rand(20, generator=generator)
        cloud, _ = step(cloud, noise, z0)
    assert used == [2, threads_of_drift, threads_of_drift]
    assert torch.get_num_threads() == 2
