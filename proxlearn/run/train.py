"""Training in a run folder: lock the folder, load the data, find the checkpoint to continue from, start a session.

New, continued and extended runs use the same code.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from proxlearn.config.schema import TrainConfig
from proxlearn.core.hyper import blind_step_notice
from proxlearn.core.schedules import first_kappa
from proxlearn.distributed.agreement import check_same_data, check_visible
from proxlearn.distributed.world import STARTED, World
from proxlearn.errors import SAME_COMMAND, InputError, StoppedBySignal, continue_command
from proxlearn.files.atomic import CONTINUES_FROM_CHECKPOINT, disk_errors_as_run_error
from proxlearn.loggers.logger import check_logger
from proxlearn.memory import out_of_memory_as_run_error
from proxlearn.portability import usable_threads
from proxlearn.run import result_files
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.run.folder_recognition import refuse_table_inside, require_run_or_empty
from proxlearn.run.lock import FolderLock
from proxlearn.run.loop_state import RunState
from proxlearn.run.observed_status import Outcome
from proxlearn.run.observers import SessionOptions
from proxlearn.run.overwrite import recover, staged_run, swap_in
from proxlearn.run.previous_session import retention_settings
from proxlearn.run.resume_point import ResumePoints, load_resume_point
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.selection import run_selection, with_stored_selection
from proxlearn.run.session import run_session, write_first_state
from proxlearn.run.signals import Interrupted, StopRequest
from proxlearn.run.status_writer import Status
from proxlearn.run.training_loop import follow, make_shards
from proxlearn.terminal.streams import notice
from proxlearn.training.engine import choose_engine, depends_on_threads
from proxlearn.training.settings import Settings

OLD_RUN_UNCHANGED = f"{SAME_COMMAND} starts again (the old run is unchanged)"


def train(
    config: TrainConfig,
    path: Path,
    command: str,
    options: SessionOptions | None = None,
    world: World | None = None,
) -> Outcome:
    """Start, continue or extend the run of ``config`` in the folder ``path``, which is locked during the session.

    If several ranks train the run together, each rank calls this function with its ``world``; rank 0 locks the folder.
    """
    try:
        with StopRequest(among_ranks=world is not None) as stop, contextlib.ExitStack() as resources:
            if world is not None:
                world.stop = stop
                if world.rank > 0:
                    return _follow(config, path, stop, world)
            return _train(config, path, command, options or SessionOptions(), stop, resources, world)
    except Interrupted as stopped:
        # The new run of an overwrite is not in place before the first step.
        remedy = OLD_RUN_UNCHANGED if config.overwrite else f"{SAME_COMMAND} continues the run"
        raise StoppedBySignal(stopped.signal, "stopped before the first step of this session", remedy) from stopped


def _train(
    config: TrainConfig,
    path: Path,
    command: str,
    options: SessionOptions,
    stop: StopRequest,
    resources: contextlib.ExitStack,
    world: World | None,
) -> Outcome:
    check_logger(config.logger)
    remedy = OLD_RUN_UNCHANGED if config.overwrite else f"{SAME_COMMAND} {CONTINUES_FROM_CHECKPOINT}"
    with disk_errors_as_run_error(path, remedy):
        folder, lock = _lock_folder(config, path, resources)
        # The old run is kept until the new one can start, so the new one is first prepared in a separate folder.
        work = resources.enter_context(staged_run(folder)) if config.overwrite else folder
        work.check_same_run(config)
        previous = work.read_previous_session()
    with stop.interruptible():
        experiment = build_experiment(config)
    if world is not None:
        check_same_data(world, experiment.prepared.table.sha256)
        check_visible(world, path)
    # The data are checked before the run is reported as finished, because its results do not apply to data that were
    # edited after the start of the run.
    if previous.data_sha256 not in (None, experiment.prepared.table.sha256):
        raise InputError(
            f"the data of the run in {path} have changed since it started",
            "restore the data, or set overwrite=true",
        )
    with disk_errors_as_run_error(path, remedy):
        complete = with_stored_selection(experiment, work)
        ResumePoints(work, complete or experiment, previous).check_settings(complete is not None)
    if options.on_valid is not None:
        options.on_valid()
    if complete is not None and previous.finished_at is not None and previous.finished_at >= complete.steps:
        with disk_errors_as_run_error(path):
            result_files.repair_model(work, complete.prepared, complete.part_names, complete.link_slope)
        share_start(world, None)
        return Outcome(path, "finished", previous.finished_at, already_finished=True, longest_steps=previous.steps)
    engine = choose_engine(
        experiment.device.type,
        solver=config.solver,
        compile=config.compile,
        previous=previous.engine,
        ranks=world is not None,
    )
    kept = previous.threads if depends_on_threads(engine, experiment.source) else None
    threads = kept or config.threads or torch.get_num_threads()
    torch.set_num_threads(usable_threads(threads))
    warnings = [f"took over the folder from {lock.left_by}, which is no longer running"] if lock.left_by else []
    if config.threads not in (None, threads):
        warnings.append(
            f"the run keeps threads={threads}, with which it started, because the results of torch functions depend on"
            " the number of threads"
        )
    if previous.engine == "fused" and engine == "sharded":
        warnings.append(
            "the run switches permanently to the engine for several ranks, which agrees with the previous engine up to"
            " rounding, but not bit for bit"
        )
    if complete is None and world is not None and world.size > 1:
        warnings.append("the selection ran on rank 0 alone, while the other ranks waited")
        notice("the selection runs on rank 0 alone; the other ranks wait")
    with disk_errors_as_run_error(path, remedy):
        experiment = complete or run_selection(experiment, work, threads, stop)
    checkpoint = load_resume_point(work, experiment, previous, warnings.append) or first_checkpoint(experiment)
    if options.progress and checkpoint.cloud.step == 0:
        kappa = first_kappa(experiment.hyper, checkpoint.cloud)
        # The tuned recipe selects kappa for the risk of the network; the summary of the run explains it.
        text = (
            None
            if kappa is None or config.recipe == "tuned"
            else blind_step_notice(kappa, experiment.hyper.noise_scale)
        )
        warnings += [text] if text else []
    if experiment.steps < previous.steps:
        warnings.append(
            f"an earlier command set steps={previous.steps}, and the run now ends at step {experiment.steps};"
            f" steps={previous.steps} continues it with the same result as an uninterrupted run"
        )
    with (
        disk_errors_as_run_error(path, f"{continue_command(config.overwrite)} {CONTINUES_FROM_CHECKPOINT}"),
        torch.no_grad(),
    ):
        stop.check()
        lock.require_current()
        if work is not folder:
            with disk_errors_as_run_error(path, remedy):
                first_status = Status(work, experiment, engine, threads, command, previous)
                write_first_state(experiment, checkpoint, work, first_status)
                lock.require_current()
                swap_in(folder)
            checkpoint = load_resume_point(folder, experiment, previous, warnings.append) or checkpoint
            previous = replace(previous, retention=retention_settings(config))
        status = Status(folder, experiment, engine, threads, command, previous, 1 if world is None else world.size)
        start = Start(experiment.settings, checkpoint, threads)
        return run_session(
            experiment, checkpoint, folder, status, stop, warnings, options, world, lambda: share_start(world, start)
        )


@dataclass(frozen=True)
class Start:
    """The data that rank 0 sends to the other ranks before the first step: selected settings and resume point."""

    settings: Settings
    checkpoint: Checkpoint
    threads: int


def share_start(world: World | None, start: Start | None) -> None:
    """Send ``start`` to the other ranks, which wait for it; ``start`` is None if the run has already finished."""
    if world is not None:
        world.announce(STARTED)
        world.gather()
        world.share(start)
        world.is_training = start is not None


def _follow(config: TrainConfig, path: Path, stop: StopRequest, world: World) -> Outcome:
    """Train the run as a rank other than 0, which waits until rank 0 has prepared the run."""
    with stop.interruptible():
        experiment = build_experiment(config)
    check_same_data(world, experiment.prepared.table.sha256)
    check_visible(world, path)
    # Rank 0 may first select settings, which can take longer than the timeout of an exchange.
    world.await_event(STARTED)
    world.gather()
    start: Start | None = world.share()
    if start is None:
        return Outcome(path, "finished", config.steps or 0, already_finished=True)
    world.is_training = True
    torch.set_num_threads(usable_threads(start.threads))
    threads, shards = start.threads, make_shards(config.N, world)
    state = RunState(replace(experiment, settings=start.settings), start.checkpoint, shards)
    # This reference is deleted, so that the memory of the first cloud is freed after the first step.
    del start
    with disk_errors_as_run_error(path), torch.no_grad(), out_of_memory_as_run_error():
        return follow(state, RunFolder(path), stop, threads, world)


def _lock_folder(config: TrainConfig, path: Path, resources: contextlib.ExitStack) -> tuple[RunFolder, FolderLock]:
    """Create the run folder if needed, lock it, and undo or complete an interrupted overwrite."""
    # The folder is checked before it is locked, because the lock creates a file in it.
    require_run_or_empty(path)
    refuse_table_inside(config.dataset.path, path)
    path.mkdir(parents=True, exist_ok=True)
    RunFolder(path).refuse_links()
    lock = resources.enter_context(FolderLock(path))
    folder = RunFolder(path, lock.require_current)
    recover(folder)
    return folder, lock
