"""The loop: from a config and a folder to a trained cloud, readable from top to bottom."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.errors import InputError, RunError
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run import result
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.experiment import (
    Experiment,
    build_experiment,
    draw,
    dtype_of,
    first_checkpoint,
    is_finite,
    not_finite,
)
from proxlearn.run.folder import RunFolder
from proxlearn.run.metrics import MetricsLog, measure
from proxlearn.run.progress import Progress
from proxlearn.run.schedule import is_logged
from proxlearn.run.signals import StopRequest
from proxlearn.run.status import Status
from proxlearn.schema import TrainConfig


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path
    state: str
    step: int
    signal: int | None = None
    already_finished: bool = False


def train(config: TrainConfig, path: Path, command: str) -> Outcome:
    """Run, continue or extend the run that ``config`` describes, in the folder ``path``."""
    folder = RunFolder(path)
    earlier: dict[str, Any] = {}
    if folder.holds_run():
        folder.check_same_run(config)
        earlier = folder.read_status()
    experiment = build_experiment(config)
    if earlier:
        # Before anything is called finished: old figures must not pass for those of a file that was edited since.
        if earlier["data_sha256"] != experiment.prepared.table.sha256:
            raise InputError(f"the data of {path} has changed since it began", "restore it, or set hydra.run.dir=...")
        if earlier["state"] == "finished" and earlier["step"] >= config.steps:
            return Outcome(path, "finished", earlier["step"], already_finished=True)
    now, generator = first_checkpoint(experiment)
    # The order of a sum depends on the number of threads: a run keeps the number it began with.
    threads = earlier.get("threads") or config.threads or torch.get_num_threads()
    torch.set_num_threads(threads)

    folder.create(config)
    journal = folder.journal()
    try:
        now = resumed(folder, now, generator, journal)
        result.write_model(folder, experiment.prepared, experiment.problem.neuron.name)
        result.write_points(folder, experiment.prepared)
        status = Status(folder, experiment, threads, command, earlier.get("seconds", 0.0))
        status.write("running", now)
        journal.info("%s: from step %d to %d", command, now.cloud.step, config.steps)
        try:
            with torch.no_grad():
                signal = recurse(experiment, now, generator, folder, status, journal)
        except BaseException as error:
            status.write("failed", error=str(error) or type(error).__name__)
            journal.error("failed", exc_info=None if isinstance(error, RunError) else error)
            raise
        journal.info("%s at step %d", status.values["state"], status.values["step"])
    finally:
        for handler in journal.handlers:
            handler.close()
    return Outcome(path, status.values["state"], status.values["step"], signal)


def recurse(
    experiment: Experiment,
    now: Checkpoint,
    generator: torch.Generator,
    folder: RunFolder,
    status: Status,
    journal: logging.Logger,
) -> int | None:
    """The recursions from ``now`` to the last step; returns the signal that stopped them early, if one did."""
    config, first = experiment.config, now.cloud.step
    experiment = experiment.to(now.cloud.theta.dtype)
    with MetricsLog(folder.metrics) as metrics, Progress(config.steps, first) as progress, StopRequest() as stop:

        def save() -> None:
            metrics.sync()
            checkpoints.save(folder.checkpoints, replace(now, generator=generator.get_state()))

        # Rows past the checkpoint will be written again; the last row of a shorter run is not on the schedule.
        metrics.start(keep=lambda k: k <= first and is_logged(k, config.log_every))
        if metrics.empty:
            metrics.write(measure(experiment.problem, experiment.test, now.cloud, None, experiment.hyper))
        while now.cloud.step < config.steps and stop.signal is None:
            noise, z0 = draw(now.cloud, generator)
            cloud, info = experiment.step(now.cloud, noise, z0)
            if not is_finite(cloud):
                now = in_fallback_precision(now, cloud, config, journal)
                dtype = now.cloud.theta.dtype
                experiment = experiment.to(dtype)
                cloud, info = experiment.step(now.cloud, noise.to(dtype), z0.to(dtype))
                if not is_finite(cloud):
                    raise not_finite(cloud)
            unmet = info is not None and not info.solution.stopped
            now = replace(now, cloud=cloud, unmet=now.unmet + unmet)
            if is_logged(cloud.step, config.log_every) or cloud.step == config.steps:
                row = measure(experiment.problem, experiment.test, cloud, info, experiment.hyper)
                metrics.write(row)
                progress.metrics(row)
            if cloud.step % config.checkpoint_every == 0 and cloud.step < config.steps:
                save()
            progress.advance(cloud.step)
            status.running(now)
        save()
        result.write_figures(folder, experiment.problem, experiment.test, now.cloud)
        stopped = now.cloud.step < config.steps
        status.write("stopped" if stopped else "finished", now)
    return stop.signal if stopped else None


def resumed(folder: RunFolder, start: Checkpoint, generator: torch.Generator, journal: logging.Logger) -> Checkpoint:
    """The newest valid checkpoint of an earlier session, or the start."""
    found = checkpoints.newest_valid(
        folder.checkpoints, lambda path, why: journal.warning("skipping the checkpoint %s: %s", path.name, why)
    )
    if found is None:
        return start
    generator.set_state(found.generator)
    return checkpoints.to(found, start.cloud.theta.device)


def in_fallback_precision(now: Checkpoint, bad: PointCloud, config: TrainConfig, journal: logging.Logger) -> Checkpoint:
    """The last good cloud in the fallback precision; an error where there is none, or it is in use already."""
    fallback = config.device.fallback_dtype
    if fallback is None or now.switched_at is not None:
        raise not_finite(bad)
    journal.warning("%s: going on in %s from step %d", not_finite(bad).problem, fallback, now.cloud.step)
    cloud = now.cloud.to(now.cloud.theta.device, dtype_of(fallback))
    return replace(now, cloud=cloud, switched_at=bad.step)
