"""The selection of a run: selection.json with the chosen values, and the stored results of its candidates.

The results are stored in the format and folder of the checkpoints, and are deleted when the selection is complete. A
file is used only for the same fit: its key consists of the run's settings and data, the candidate's settings, the rung
(the round of successive halving), the revision of the recursion and the version of proxlearn.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from proxlearn import __version__
from proxlearn.core.cloud import PointCloud, Screen
from proxlearn.core.step import REVISION
from proxlearn.errors import InputError, RunError, StoppedBySignal, refuse_newer_format
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json
from proxlearn.printable_text import counted
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints
from proxlearn.run.experiment import Experiment
from proxlearn.run.run_folder import SELECTION_FORMAT, RunFolder, list_candidates
from proxlearn.run.signals import Interrupted, StopRequest
from proxlearn.terminal.streams import notice
from proxlearn.training.fit import FitState
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import select
from proxlearn.validators import integer, optional, real, strengths


class SelectionFiles:
    """The stored results of the candidates of one selection."""

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        self._identity = f"{identity}-{REVISION}-{__version__}"

    def __len__(self) -> int:
        return len(list_candidates(self._folder))

    def load(self, rung: int, candidate: int, settings: Settings) -> FitState | RunError | None:
        """Return the stored result of a candidate after a rung, or None if there is no valid file for this fit."""
        try:
            file = checkpoint_file.read_checkpoint_file(self._path(rung, candidate), named=False)
            if file.state["key"] != self._key(rung, settings):
                return None
            if file.state["error"] is not None:
                return RunError(*file.state["error"])
            # The tensors are cloned so that they are aligned in memory, as in a checkpoint.
            tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(file.blob).items()}
            radius, step, epsilon = (file.state[name] for name in ("radius", "step", "epsilon"))
            screen = None if radius is None else Screen(tensors["reference"], radius)
            cloud = PointCloud(tensors["theta"], tensors["log_rho"], step, screen, epsilon)
            return FitState(cloud, cloud, tensors["generator"], tuple(file.state["history"]))
        except (*checkpoint_file.PARSE_ERRORS, InvalidCheckpoint, safetensors.SafetensorError, RuntimeError):
            return None

    def save(self, rung: int, candidate: int, settings: Settings, result: FitState | RunError) -> None:
        state: dict[str, Any] = {"key": self._key(rung, settings), "error": None}
        tensors = {"generator": torch.zeros(1, dtype=torch.uint8)}
        if isinstance(result, RunError):
            state["error"] = (result.problem, result.remedy)
        else:
            # The selection continues from the newest cloud and reads the history; the best cloud is not needed.
            cloud, screen = result.newest, result.newest.screen
            tensors = {"theta": cloud.theta, "log_rho": cloud.log_rho, "generator": result.generator}
            tensors |= {} if screen is None else {"reference": screen.reference.clone()}
            state |= {"step": cloud.step, "epsilon": cloud.epsilon, "history": result.history}
            state["radius"] = None if screen is None else screen.radius
        blob = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
        write_atomically(self._path(rung, candidate), checkpoint_file.encode_checkpoint(blob, state))

    def clear(self) -> None:
        for path in list_candidates(self._folder):
            path.unlink(missing_ok=True)

    def _path(self, rung: int, candidate: int) -> Path:
        return self._folder / f"selection-{rung + 1}-{candidate + 1}.safetensors"

    def _key(self, rung: int, settings: Settings) -> str:
        return f"{self._identity}-{rung}-{sorted(asdict(replace(settings, steps=None)).items())}"


POSITIVE = real(above=0, example=1.0)
CHECKS = dict.fromkeys(("init_scale", "h", "beta", "epsilon"), POSITIVE) | {"steps": integer(at_least=0, example=1)}
ADDED_CHECKS = {"confinement": strengths, "horizon": optional(integer(at_least=1, example=1000))}
"""Checks of selected values that are missing in the selection.json of earlier versions."""


def with_stored_selection(experiment: Experiment, folder: RunFolder) -> Experiment | None:
    """Return the experiment with the values that an earlier session selected, or None if no values are stored yet.

    An experiment without values to select is returned unchanged.
    """
    if not experiment.config.selected:
        return experiment
    try:
        selected = read_chosen(folder)
        slope = read_link_slope(folder)
    except UnreadableFile as error:
        if not any(step > 0 for step, _ in list_checkpoints(folder.checkpoints)):
            # No step depends on the selected values yet.
            return None
        remedy = "restore it, or train again with overwrite=true"
        raise UnreadableFile(folder.selection, error.why, remedy) from error
    return None if selected is None else experiment.with_selection(selected, slope)


def read_link_slope(folder: RunFolder) -> float | None:
    """Return the slope in selection.json that converts outputs to class probabilities, or None if it is missing."""
    try:
        slope = read_json(folder.selection).get("link_slope")
        return None if slope is None else float(POSITIVE("link_slope", slope))
    except AbsentFile:
        return None
    except InputError as error:
        raise UnreadableFile(folder.selection, error.problem) from error


def read_chosen(folder: RunFolder) -> dict[str, Any] | None:
    """Return the selected values in selection.json by config key, or None if the file does not exist."""
    try:
        record = read_json(folder.selection)
    except AbsentFile:
        return None
    refuse_newer_format(folder.selection, record.get("format"), SELECTION_FORMAT)
    try:
        if record["format"] != SELECTION_FORMAT:
            raise UnreadableFile(
                folder.selection, f"its format is {record['format']!r:.60} instead of {SELECTION_FORMAT!r}"
            )
        chosen = record["chosen"]
        added = {name: check for name, check in ADDED_CHECKS.items() if name in chosen}
        return {name: check(name, chosen[name]) for name, check in (CHECKS | added).items()}
    except UnreadableFile:
        raise
    except (KeyError, TypeError, InputError) as error:
        why = error.problem if isinstance(error, InputError) else "it does not contain the selected values"
        raise UnreadableFile(folder.selection, why) from error


def run_selection(experiment: Experiment, folder: RunFolder, threads: int, stop: StopRequest) -> Experiment:
    """Select the settings that are null, write selection.json, and return the experiment with the selected values."""
    config = experiment.config
    start = time.monotonic()
    notice_time = start

    def progress(text: str) -> None:
        nonlocal notice_time
        stop.check()
        folder.require_held()
        if sys.stderr.isatty() or time.monotonic() - notice_time > 2:
            notice_time = time.monotonic()
            notice(text)

    # The number of steps is selected even if the user has set it, because a later command may leave it out.
    base = replace(experiment.settings, steps=None)
    # The config marks the folder as a run folder, so that an interrupted selection can be continued.
    folder.create(experiment.config)
    store = SelectionFiles(folder.checkpoints, experiment.config_identity)
    try:
        with stop.interruptible():
            selection = select(
                experiment.source,
                base,
                seed=experiment.config.seed,
                threads=threads,
                rows=experiment.config.selection_rows,
                progress=progress,
                store=store,
            )
    except Interrupted as stopped:
        remedy = f"the same command continues the selection (candidate results stored: {len(store)})"
        if experiment.config.overwrite:
            # The new run was prepared in a separate folder, which is deleted.
            remedy = "the same command starts again (the old run is unchanged)"
        raise StoppedBySignal(stopped.signal, "stopped during the selection", remedy) from stopped
    selected = {name: asdict(selection.settings)[name] for name in CHECKS | ADDED_CHECKS}
    seconds = round(time.monotonic() - start, 3)
    record = {
        "format": SELECTION_FORMAT,
        "chosen": selected,
        "link_slope": selection.link_slope,
        "end": selection.end,
        "seconds": seconds,
        "candidates": list(selection.table),
    }
    folder.require_held()
    write_json(folder.selection, record)
    store.clear()
    numbers = ", ".join(f"{name}={_text(value)}" for name, value in selected.items() if name in config.selected)
    most, rows = config.selection_rows, len(experiment.source.samples)
    part = "the training part" if most is None or rows <= most else f"{most} of the {rows} training rows"
    if selection.table:
        notice(f"selected {numbers} in {seconds:.1f} s, on a held-out quarter of {part} (selection.json)")
    else:
        notice(f"the training part has only {counted(rows, 'row')}, too few for a selection; the run uses {numbers}")
    if selection.end in ENDS and "steps" in config.selected:
        notice(ENDS[selection.end].format(step=selected["steps"], more=2 * selected["steps"]))
    return experiment.with_selection(selected, selection.link_slope)


ENDS = {
    "step cap": "the validation score is lowest near the last step of the selection (at step {step}); more"
    " steps (steps={more}, or --set steps={more} with `fit`) may improve the model a little",
    "fewest steps": "the validation score is already lowest at step {step}; the features may contain little "
    "information about the target",
}
"""Notices about the step at which the validation score is lowest."""


def _text(value: Any) -> str:
    """Return a selected value as it is written on the command line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{block}:{strength:g}" for block, strength in value.items()) + "}"
    return "null" if value is None else f"{value:g}"
