"""A store that cannot be used ends a run at once, and a server that never answers delays a run only by seconds."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import run, small

from proxlearn.config.schema import LoggerConfig
from proxlearn.errors import RunError
from proxlearn.loggers.logger import LOGGER_KINDS
from proxlearn.run.logger_session import log_session_end
from proxlearn.run.signals import StopRequest
from tests.loggers.test_loggers import LENGTH


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server on this machine that accepts connections but never answers."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_server_is_one_notice_and_the_run_goes_on(
    silent_server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, config = tmp_path / "run", small(logger=LoggerConfig("mlflow", silent_server, None), **LENGTH)
    start = time.monotonic()
    assert run(config, folder).state == "finished"
    log_session_end(config.logger, folder, [])
    assert time.monotonic() - start < 30
    message = capfd.readouterr().err
    assert message.count("proxlearn: ") == 1
    assert f"MLflow at {silent_server} failed: " in message
    assert "all rows are still written to metrics.csv" in message


def test_a_signal_is_obeyed_while_a_server_is_silent(silent_server: str, tmp_path: Path) -> None:
    """The signal arrives during the first call, which the time limit of the whole call ends."""
    from proxlearn.loggers import mlflow_run

    start = time.monotonic()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with StopRequest() as stop:
        with pytest.raises(TimeoutError, match="did not answer within 1 s"):
            mlflow_run.call_with_timeout(1, lambda: time.sleep(20))
        assert stop.signal == signal.SIGTERM
    assert time.monotonic() - start < 10
    config = small(logger=LoggerConfig("mlflow", silent_server, None), **(LENGTH | {"steps": 10**7}))
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    outcome = run(config, tmp_path / "run")
    assert (outcome.state, outcome.signal) == ("stopped", signal.SIGTERM)


def test_requests_have_a_short_time_out_unless_the_user_sets_one() -> None:
    names = ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    seconds, retries = (int(LOGGER_KINDS["mlflow"].environment[name]) for name in names)
    assert seconds * (1 + retries) <= 20


def test_a_store_that_cannot_be_used_is_said_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    config = small(logger=LoggerConfig("mlflow", "file", None), **LENGTH)
    with pytest.raises(RunError, match=r"MLflow at file cannot be used: .*logger=csv"):
        run(config, tmp_path / "run")
