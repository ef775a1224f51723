"""A store that cannot be used ends a run at once, and a server that never answers delays a run only by seconds."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_runs import run, small

from proxlearn.config.schema import LoggerConfig
from proxlearn.errors import RunError
from proxlearn.loggers.logger import LOGGER_KINDS
from proxlearn.run.logger_session import log_session_end
from proxlearn.run.signals import StopRequest
from tests.loggers.reading import assert_same, read_csv, read_tensorboard, read_wandb
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


@pytest.mark.parametrize("names", [("wandb", "tensorboard"), ("tensorboard", "wandb")])
def test_one_of_several_loggers_fails_and_the_others_get_every_row(
    names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from proxlearn.loggers.wandb_run import WandbLogger

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    uri = str(tmp_path / "store") if names[0] == "wandb" else None
    folder, config = tmp_path / "run", LoggerConfig(names[0], uri, names[1:])
    log_row = WandbLogger.log_row

    def failing_log_row(self: WandbLogger, row: dict) -> None:
        with pytest.MonkeyPatch.context() as broken:
            if row["step"] == 8:
                broken.setattr(self._run, "log", None)
            log_row(self, row)

    with monkeypatch.context() as patched:
        patched.setattr(WandbLogger, "log_row", failing_log_row)
        assert run(small(logger=config, **LENGTH), folder).state == "finished"
    assert capfd.readouterr().err.count("wandb failed: ") == 1
    assert_same(read_tensorboard(folder), read_csv(folder), np.float32)
    # The next session adds the missing rows.
    run(small(logger=config, **(LENGTH | {"steps": 31})), folder)
    assert_same(read_tensorboard(folder), read_csv(folder), np.float32)
    run_id = json.loads((folder / "wandb.json").read_text())["run_id"]
    store = tmp_path / ("store" if uri else "outputs/wandb")
    assert_same(read_wandb(store, run_id), read_csv(folder))


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
