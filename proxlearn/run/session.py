"""One session of a run: the part of the run that one process computes, with its log and its status."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from proxlearn.distributed.world import World
from proxlearn.errors import RunError
from proxlearn.files.atomic import break_hard_links
from proxlearn.memory import out_of_memory_as_run_error
from proxlearn.printable_text import printable
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import result_files
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.experiment import Experiment
from proxlearn.run.lock import FolderLost
from proxlearn.run.logger_session import logger_session
from proxlearn.run.metrics import MetricsLog, measure
from proxlearn.run.observed_status import Outcome
from proxlearn.run.observers import SessionOptions
from proxlearn.run.resume_point import convert_metrics
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.signals import StopRequest
from proxlearn.run.status_writer import Status
from proxlearn.run.training_loop import training_loop
from proxlearn.terminal.streams import notice


class QuietFileHandler(logging.FileHandler):
    """A file handler that ignores write errors, such as those of a full disk, because the run itself reports them."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


class TerminalFormatter(logging.Formatter):
    """A formatter that writes a record, which may quote a damaged file, as one line without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def open_run_log(path: Path) -> logging.Logger:
    """Return a logger that appends to ``path`` and is independent of the loggers of other runs in this process.

    The caller must close the handlers of the logger.
    """
    logger = logging.Logger("proxlearn.run")
    break_hard_links(path)
    file = QuietFileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(file)
    terminal = logging.StreamHandler(sys.stderr)
    terminal.setLevel(logging.WARNING)
    terminal.setFormatter(TerminalFormatter("proxlearn: %(message)s"))
    logger.addHandler(terminal)
    return logger


def write_first_state(experiment: Experiment, checkpoint: Checkpoint, folder: RunFolder, status: Status) -> None:
    """Write the files of step 0, from which a session can start or continue the run."""
    folder.create(experiment.config)
    _write_model_and_points(experiment, folder)
    with MetricsLog(folder.metrics) as log:
        log.start(checkpoint.metrics, None)
        divided = status.values["engine"] == "sharded"
        parts = experiment.metric_samples
        log.write(measure(experiment.problem, parts, checkpoint.cloud, None, experiment.hyper, divided))
        log.sync()
        checkpoints.save(folder.checkpoints, replace(checkpoint, metrics=log.mark))
    status.write("running", checkpoint)


def run_session(
    experiment: Experiment,
    checkpoint: Checkpoint,
    folder: RunFolder,
    status: Status,
    stop: StopRequest,
    warnings: list[str],
    options: SessionOptions,
    world: World | None = None,
    when_ready: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run a session from ``checkpoint`` to the last step; write the log and the status even if the session fails.

    ``when_ready`` is called once the folder is ready for the ranks of ``world``, which write parts of checkpoints.
    """
    folder.create(experiment.config)
    foreign_lines = MetricsLog(folder.metrics).foreign_lines(checkpoint.metrics)
    checkpoint = convert_metrics(folder, experiment, checkpoint)
    journal = open_run_log(folder.log)
    try:
        for warning in warnings:
            journal.warning(warning)
        if foreign_lines:
            count = "a line" if len(foreign_lines) == 1 else f"{len(foreign_lines)} lines"
            problem = "metrics.csv contained %s that the run did not write; the text was moved to train.log"
            journal.warning(problem, count)
            for line in foreign_lines:
                journal.info("line moved from metrics.csv: %s", line)
        _write_model_and_points(experiment, folder)
        for part, total in (("training", len(experiment.problem.samples)), ("test", len(experiment.test))):
            most = experiment.config.metric_rows
            if most is not None and total > most:
                sample = f"the metrics of logged steps use {most} of the {total} {part} rows (metric_rows={most})"
                journal.info(sample)
                notice(f"{sample}; the final scores use all rows")
        status.write("running", checkpoint)
        journal.info("%s: from step %d to %d", status.values["command"], checkpoint.cloud.step, experiment.steps)
        with out_of_memory_as_run_error(), logger_session(experiment.config.logger, folder, journal.warning) as logger:
            when_ready()
            signal = training_loop(experiment, checkpoint, folder, status, stop, journal, logger, options, world)
        journal.info("%s at step %d", status.values["state"], status.values["step"])
    except FolderLost:
        # The log and the status may belong to another run by now.
        raise
    except BaseException as error:
        # If the status cannot be written, the first error is still raised. Only unexpected errors log a traceback.
        with contextlib.suppress(OSError, FolderLost):
            status.write("failed", error=str(error) or type(error).__name__)
        journal.info("failed: %s", error, exc_info=None if isinstance(error, OSError | RunError) else error)
        raise
    finally:
        for handler in journal.handlers:
            with contextlib.suppress(OSError):
                handler.close()
    return Outcome(folder.path, status.values["state"], status.values["step"], signal)


def _write_model_and_points(experiment: Experiment, folder: RunFolder) -> None:
    result_files.write_model(folder, experiment.prepared, experiment.part_names, experiment.link_slope)
    result_files.write_points(folder, experiment.prepared)
