"""MLflow: a run of its own in the store that ``logger.uri`` names, by default a folder on this machine.

A folder, and not MLflow's database: the jobs of a sweep write side by side, on a cluster's file system too, and
mlflow-skinny is enough. What MLflow holds cannot be taken back, so nothing is sent that it holds already.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from proxlearn.config.schema import LoggerConfig
from proxlearn.errors import RunError
from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.files.user_paths import expand_home
from proxlearn.loggers.logger import RUN_ID_FILE, Row, RunInfo, read_rows

TIMEOUT, RETRIES = "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
SERVER_URI = re.compile(r"[a-z+]{2,}:", re.IGNORECASE)
"""Of a server or a database; anything else is a folder."""
MLFLOW_RUN_ID = re.compile(r"[0-9a-f]{32}")
ARTIFACTS = ("config.yaml", "selection.json", "accuracy.csv", "confusion.csv")
MLFLOW_STATUS = {"finished": "FINISHED", "stopped": "KILLED"}
MOST_METRICS, MOST_SETTINGS, LONGEST = 1000, 100, 500
"""What MLflow takes at once, and in one setting."""
LOCK_SECONDS = 30.0
"""How long a run waits for others that make their experiment in the same folder."""
RETRY_SERVER_SECONDS = 300.0
_unanswered_since: dict[str, float] = {}
"""Servers that gave no answer, and when: they are not asked again for SILENT_SECONDS."""


class MlflowLogger:
    """Metrics by step, the trajectory's settings as parameters, the others as tags, files as artifacts."""

    def __init__(self, config: LoggerConfig, about: RunInfo, warn: Callable[[str], None]) -> None:
        assert config.uri is not None, "the schema lets no such config pass"
        self._about, self._warn = about, warn
        self._uri = config.uri
        self._local = None if SERVER_URI.match(config.uri) else Path(expand_home(config.uri)).absolute()
        self._run_id = ""
        self._present: set[tuple[str, int]] = set()
        self._silent = False
        self._client: Any = None

    def begin(self, metrics: Path) -> None:
        if time.monotonic() - _unanswered_since.get(self._uri, -math.inf) < RETRY_SERVER_SECONDS:
            self._silent = True
            return
        try:
            with self._alone():
                client = MlflowClient(self._uri if self._local is None else self._local.as_uri())
                self._client = client if self._local is not None else TimeoutClient(client)
                run = self._known() or self._created()
            self._run_id = run.info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            self._present = {
                (name, metric.step)
                for name in run.data.metrics
                for metric in self._client.get_metric_history(self._run_id, name)
            }
            self._send_settings()
            self._send(read_rows(metrics))
        except Exception as error:
            # MLflow's own errors, those of files and networks, and where a store has gone, a bare Exception.
            if self._local is None and _is_timeout(error):
                self._give_up(error)
                return
            problem = f"MLflow at {_without_password(self._uri)} cannot be used: {_error_line(error)}"
            raise RunError(problem, "put that right, or give the command with logger=csv") from error

    def row(self, row: Row) -> None:
        self._attempt(lambda: self._send([row]))

    def pictures(self, paths: Iterable[Path], step: int) -> None:
        tables = (self._about.folder / name for name in ARTIFACTS)

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

    def _known(self) -> Run | None:
        """The run of earlier sessions, if this store has it."""
        try:
            run_id = read_json(self._about.folder / RUN_ID_FILE)["run_id"]
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

    def _created(self) -> Run:
        name = f"proxlearn-{self._about.dataset}"
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        tags = {"mlflow.source.name": "proxlearn", "proxlearn.folder": str(self._about.folder)}
        run = self._client.create_run(experiment, tags=tags, run_name=self._about.folder.name)
        (self._about.folder / RUN_ID_FILE).write_text(json.dumps({"run_id": run.info.run_id}) + "\n", encoding="utf-8")
        return run

    def _send_settings(self) -> None:
        params = [Param(name, value[:LONGEST]) for name, value in self._about.settings.items()]
        tags = [RunTag(f"proxlearn.{name}", value[:LONGEST]) for name, value in self._about.other_settings.items()]
        for start in range(0, len(params), MOST_SETTINGS):
            self._client.log_batch(self._run_id, params=params[start : start + MOST_SETTINGS])
        self._client.log_batch(self._run_id, tags=tags)

    def _send(self, rows: Sequence[Row]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            Metric(name, float(value), now, int(row["step"] or 0))
            for row in rows
            for name, value in row.items()
            if name != "step" and value is not None and (name, row["step"]) not in self._present
        ]
        for start in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + MOST_METRICS])

    def _attempt(self, send: Callable[[], None]) -> None:
        """A store that fails stops no run: it is said once, and the next session sends what is missing."""
        if self._silent:
            return
        try:
            send()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._silent = True
        if self._local is None and _is_timeout(error):
            _unanswered_since[self._uri] = time.monotonic()
        self._warn(
            f"MLflow at {_without_password(self._uri)} takes no more: {_error_line(error)}; metrics.csv has everything"
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time in a store that is a folder: two would make two experiments of one name."""
        if self._local is None:
            yield
            return
        self._local.parent.mkdir(parents=True, exist_ok=True)
        with (self._local.parent / f".{self._local.name}.lock").open("w") as file:
            _acquire_lock(file.fileno())
            yield


class TimeoutClient:
    """MLflow's client for a server: a call that gets no answer ends, whatever the network does.

    The time-out of its requests alone is not enough: it starts anew with every byte and every try. And Python obeys no
    signal while it waits for a socket, only while it waits for a thread.
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
    """The result of ``call``; TimeoutError where it takes longer, and then it is left to itself."""
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
        raise TimeoutError(f"it did not answer within {seconds:g} s")
    return results[0]


def _is_timeout(error: BaseException) -> bool:
    """Whether a server took the call and gave no answer; one that refuses it is another matter."""
    return isinstance(error, TimeoutError) or "timed out" in str(error)


def _acquire_lock(handle: int) -> None:
    """Wait for an exclusive lock, but not for ever: a process that hangs with it must not block others.

    A file system without locks: a run there goes on without one.
    """
    end = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < end:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return
        else:
            return


def _without_password(uri: str) -> str:
    """The place, without a password that may be in it."""
    return re.sub(r"//[^/@]*@", "//", uri)


def _error_line(error: BaseException) -> str:
    """What went wrong, without the library's account of its tries."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _without_password(first.partition(" with exception")[0][:200])
