"""The Weights & Biases logger: an offline run in the folder ``logger.uri``, which ``wandb sync`` uploads.

The mode is offline unless the user sets WANDB_MODE, so that a run needs neither an account nor a network. An offline
run cannot be read back, so the file wandb.json in the run folder contains the id of the run and the last logged step. A
session logs the rows of metrics.csv after this step under the same id.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import wandb

from proxlearn.config.schema import LoggerConfig
from proxlearn.errors import RunError
from proxlearn.files.safe_read import UnreadableFile, expand_home, read_json
from proxlearn.loggers.logger import WANDB_FILE, Row, RunInfo, read_rows


class WandbLogger:
    """A logger that stores metrics and plots by step in wandb, and the settings as the config of the wandb run."""

    def __init__(self, config: LoggerConfig, info: RunInfo, warn: Callable[[str], None]) -> None:
        assert config.uri is not None, "every logger with a store has a uri"
        self._info, self._warn = info, warn
        self._store = Path(expand_home(config.uri)).absolute()
        self._run: Any = None
        self._last_step = -1

    def begin(self, metrics: Path) -> None:
        run_id, self._last_step = self._read_state()
        # wandb names the folder of an offline run by second and id; a session in the same second would replace it.
        while run_id and any((self._store / "wandb").glob(f"*run-{time.strftime('%Y%m%d_%H%M%S')}-{run_id}")):
            time.sleep(0.1)
        try:
            self._store.mkdir(parents=True, exist_ok=True)
            self._run = wandb.init(
                project=f"proxlearn-{self._info.dataset}",
                name=self._info.folder.name,
                id=run_id,
                dir=str(self._store),
                mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
                resume="allow" if run_id else None,
                config={**self._info.settings, **self._info.other_settings},
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
                ),
            )
        except Exception as error:
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RunError(f"wandb cannot be used: {line:.200}", "fix the cause, or leave out logger=wandb") from error
        self._write_state()
        for row in read_rows(metrics):
            self.log_row(row)

    def log_row(self, row: Row) -> None:
        step = int(row["step"] or 0)
        if step <= self._last_step:
            # An earlier session has logged this row; a continued run repeats such rows.
            return
        values = {name: float(value) for name, value in row.items() if name != "step" and value is not None}
        if self._attempt(lambda: self._run.log(values, step=step)):
            self._last_step = step

    def log_plots(self, paths: Iterable[Path], step: int) -> None:
        images = {f"plots/{path.stem}": wandb.Image(str(path)) for path in paths}
        if images:
            self._attempt(lambda: self._run.log(images, step=max(step, self._last_step)))

    def close(self, state: str) -> None:
        if self._attempt(lambda: self._run.finish(exit_code=0 if state == "finished" else 1)):
            self._write_state()
        self._run = None

    def _attempt(self, send: Callable[[], Any]) -> bool:
        """Call ``send``; if it fails, warn, send nothing more, and return False; the next session adds missing rows."""
        if self._run is None:
            return False
        try:
            send()
        except Exception as error:
            # Without finish, wandb.init of the next session in this process would return the failed run. The rows that
            # were sent count as logged only if wandb has stored them.
            with contextlib.suppress(Exception):
                self._run.finish(exit_code=1)
                self._write_state()
            self._run = None
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._warn(f"wandb failed: {line:.200}; all rows are still written to metrics.csv")
            return False
        return True

    def _read_state(self) -> tuple[str | None, int]:
        """Return the id of the run and its last logged step, or None and -1 if wandb.json is missing or not valid."""
        try:
            state = read_json(self._info.folder / WANDB_FILE)
            run_id, step = state["run_id"], state["last_step"]
        except (KeyError, UnreadableFile):
            return None, -1
        if not isinstance(run_id, str) or not run_id.isalnum() or type(step) is not int:
            return None, -1
        return run_id, step

    def _write_state(self) -> None:
        if self._run is None:
            return
        state = {"run_id": self._run.id, "last_step": self._last_step}
        with contextlib.suppress(OSError):
            (self._info.folder / WANDB_FILE).write_text(json.dumps(state) + "\n", encoding="utf-8")
