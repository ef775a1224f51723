"""The MLflow logger: a run in the store that ``logger.uri`` names, by default a folder on this machine.

The default is a folder instead of MLflow's database, because the jobs of a sweep can write to a folder at the same
time, even on a cluster's file system, and because mlflow-skinny supports folders. MLflow cannot delete logged values,
so a value that is already stored is not sent again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import lock_descriptor
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from proxlearn.config.schema import LoggerConfig
from proxlearn.errors import RunError
from proxlearn.files.safe_read import UnreadableFile, expand_home, read_json
from proxlearn.loggers.logger import RUN_ID_FILE, Row, RunInfo, read_rows

TIMEOUT, RETRIES = "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
SERVER_URI = re.compile(r"[a-z+]{2,}:", re.IGNORECASE)
"""Pattern of the URI of a server or a database; any other URI is a folder."""
MLFLOW_RUN_ID = re.compile(r"[0-9a-f]{32}")
ARTIFACTS = ("config.yaml", "selection.json", "accuracy.csv", "confusion.csv")
MLFLOW_STATUS = {"finished": "FINISHED", "stopped": "KILLED"}
MAX_METRICS, MAX_SETTINGS, MAX_LENGTH = 1000, 100, 500
"""MLflow's limits: metrics per request, settings per request, characters per setting."""
LOCK_SECONDS = 30.0
"""Maximum number of seconds that a run waits while other runs create their experiments in the same folder."""
RETRY_SERVER_SECONDS = 300.0
_unanswered_since: dict[str, float] = {}
"""Times of unanswered calls, by the URI of the server; the server is not called again for RETRY_SERVER_SECONDS."""


class MlflowLogger:
    """A logger that stores metrics, plots, tables and settings in MLflow.

    Settings that determine the trajectory are stored as parameters, and the other settings as tags.
    """

    def __init__(self, config: LoggerConfig, info: RunInfo, warn: Callable[[str], None]) -> None:
        assert config.uri is not None, "the schema requires a uri"
        self._info, self._warn = info, warn
        self._uri = config.uri
        self._local = None if SERVER_URI.match(config.uri) else Path(expand_home(config.uri)).absolute()
        self._run_id = ""
        self._logged: set[tuple[str, int]] = set()
        """Pairs of a metric and a step for which an earlier session has stored a value in MLflow."""
        self._disabled = False
        """Whether the store has failed; if so, nothing more is sent in this session."""
        self._client: Any = None

    def begin(self, metrics: Path) -> None:
        if time.monotonic() - _unanswered_since.get(self._uri, -math.inf) < RETRY_SERVER_SECONDS:
            self._disabled = True
            return
        try:
            with self._store_lock():
                client = MlflowClient(self._uri if self._local is None else self._local.as_uri())
                self._client = client if self._local is not None else TimeoutClient(client)
                run = self._find_run() or self._create_run()
            self._run_id = run.info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            self._logged = {
                (name, metric.step)
                for name in run.data.metrics
                for metric in self._client.get_metric_history(self._run_id, name)
            }
            self._send_settings()
            self._send(read_rows(metrics))
        except Exception as error:
            # MLflow raises its own errors, errors of files and networks, and Exception if a store no longer exists.
            if self._local is None and _is_timeout(error):
                self._disable(error)
                return
            problem = f"MLflow at {_without_password(self._uri)} cannot be used: {_error_line(error)}"
            raise RunError(problem, "fix the cause, or use logger=csv") from error

    def log_row(self, row: Row) -> None:
        self._attempt(lambda: self._send([row]))

    def log_plots(self, paths: Iterable[Path], step: int) -> None:
        tables = (self._info.folder / name for name in ARTIFACTS)

        def send() -> None:
            for path in paths:
                self._client.log_artifact(self._run_id, str(path), "plots")
            for path in tables:
                if path.is_file():
                    self._client.log_artifact(self._run_id, str(path))

        self._attempt(send)

    def close(self, state: str) -> None:
        if self._run_id:
            self._attempt(lambda: self._client.set_terminated(self._run_id, MLFLOW_STATUS.get(state, "FAILED")))

    def _find_run(self) -> Run | None:
        """Return the MLflow run of the earlier sessions, or None if this store does not contain such a run."""
        try:
            run_id = read_json(self._info.folder / RUN_ID_FILE)["run_id"]
        except (KeyError, UnreadableFile):
            return None
        if not isinstance(run_id, str) or not MLFLOW_RUN_ID.fullmatch(run_id):
            return None
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return run if run.info.lifecycle_stage == "active" else None

    def _create_run(self) -> Run:
        name, folder = f"proxlearn-{self._info.dataset}", self._info.folder
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        tags = {"mlflow.source.name": "proxlearn", "proxlearn.folder": str(folder)}
        run = self._client.create_run(experiment_id, tags=tags, run_name=folder.name)
        (folder / RUN_ID_FILE).write_text(json.dumps({"run_id": run.info.run_id}) + "\n", encoding="utf-8")
        return run

    def _send_settings(self) -> None:
        params = [Param(name, value[:MAX_LENGTH]) for name, value in self._info.settings.items()]
        tags = [RunTag(f"proxlearn.{name}", value[:MAX_LENGTH]) for name, value in self._info.other_settings.items()]
        for start in range(0, len(params), MAX_SETTINGS):
            self._client.log_batch(self._run_id, params=params[start : start + MAX_SETTINGS])
        self._client.log_batch(self._run_id, tags=tags)

    def _send(self, rows: Sequence[Row]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            Metric(name, float(value), now, int(row["step"] or 0))
            for row in rows
            for name, value in row.items()
            if name != "step" and value is not None and (name, row["step"]) not in self._logged
        ]
        for start in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + MAX_METRICS])

    def _attempt(self, send: Callable[[], None]) -> None:
        """Call ``send``; if it fails, warn and send nothing more. The next session adds the missing rows."""
        if self._disabled:
            return
        try:
            send()
        except Exception as error:
            self._disable(error)

    def _disable(self, error: Exception) -> None:
        self._disabled = True
        if self._local is None and _is_timeout(error):
            _unanswered_since[self._uri] = time.monotonic()
        self._warn(
            f"MLflow at {_without_password(self._uri)} failed: {_error_line(error)}; "
            "all rows are still written to metrics.csv"
        )

    @contextlib.contextmanager
    def _store_lock(self) -> Iterator[None]:
        """Lock a store that is a folder, so that two processes do not create two experiments of the same name."""
        if self._local is None:
            yield
            return
        self._local.parent.mkdir(parents=True, exist_ok=True)
        with (self._local.parent / f".{self._local.name}.lock").open("w") as file:
            _acquire_lock(file.fileno())
            yield


class TimeoutClient:
    """MLflow's client for a server, with a time limit per call.

    The timeout of MLflow's requests is not enough, because it restarts with every byte and every retry. Calls are made
    in a thread, because Python handles signals while it waits for a thread, but not while it waits for a socket.
    """

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        try:
            seconds, retries = (int(os.environ[name]) for name in (TIMEOUT, RETRIES))
        except (KeyError, ValueError):
            seconds, retries = 5, 2
        self._seconds = max(1, seconds) * (max(0, retries) + 1)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: Any, **options: Any) -> Any:
            return call_with_timeout(self._seconds, lambda: method(*args, **options))

        return call


def call_with_timeout(seconds: float, call: Callable[[], Any]) -> Any:
    """Return the result of ``call``; raise TimeoutError after ``seconds`` and leave the thread of the call running."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"the server did not answer within {seconds:g} s")
    return results[0]


def _is_timeout(error: BaseException) -> bool:
    """Return whether an error means that a server did not answer in time; a refused call is not a timeout."""
    return isinstance(error, TimeoutError) or "timed out" in str(error)


def _acquire_lock(handle: int) -> None:
    """Wait at most LOCK_SECONDS for an exclusive lock, then continue without it.

    Otherwise, a process that hangs while it holds the lock would block all others. On a file system without locks, the
    function returns immediately.
    """
    end = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < end:
        try:
            if lock_descriptor(handle, blocking=False):
                return
        except OSError:
            return
        time.sleep(0.05)


def _without_password(uri: str) -> str:
    """Return the URI without the user name and password that it may contain."""
    return re.sub(r"//[^/@]*@", "//", uri)


def _error_line(error: BaseException) -> str:
    """Return the first line of an error message, without passwords and without MLflow's list of retries."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _without_password(first.partition(" with exception")[0][:200])
