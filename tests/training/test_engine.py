"""Reports of compilation depend on what Numba compiled, not on the duration of a step."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.training import engine
from proxlearn.training.engine import CompilationReport


def triple(x):  # type: ignore[no-untyped-def]
    return 3 * x


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engine, "LONG_SECONDS", 0.001)


def test_a_slow_step_is_not_called_compilation(capsys: pytest.CaptureFixture[str]) -> None:
    with CompilationReport():
        time.sleep(0.01)
    assert capsys.readouterr().err == ""


def test_compilation_is_announced_and_a_loaded_pass_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with CompilationReport():
        compile_pass()(triple)(1)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "proxlearn: compiling the fused engine (once per kind of problem, version and processor) ..."
    assert second.endswith("later runs load the compiled code from the cache")
    with CompilationReport():
        compile_pass()(triple)(1)
    assert capsys.readouterr().err == ""


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
