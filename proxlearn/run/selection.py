"""The file selection.json: the candidates, and the values selected for settings that are null in the config."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from typing import Any

from proxlearn.errors import InputError, StoppedBySignal, refuse_newer_format
from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json
from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.run.experiment import Experiment
from proxlearn.run.run_folder import SELECTION_FORMAT, RunFolder
from proxlearn.run.selection_store import SelectionFiles
from proxlearn.run.signals import Interrupted, StopRequest
from proxlearn.terminal.notice import notice
from proxlearn.training.successive_halving import select
from proxlearn.validators import integer, real

POSITIVE = real(above=0, example=1.0)
CHECKS = dict.fromkeys(("init_scale", "h", "beta", "epsilon"), POSITIVE) | {"steps": integer(at_least=0, example=1)}


def with_stored_selection(experiment: Experiment, folder: RunFolder) -> Experiment | None:
    """Return the experiment with the values that an earlier session selected, or None if selection must run first."""
    if not experiment.config.selected:
        return experiment
    try:
        selected = read_chosen(folder)
    except UnreadableFile as error:
        if not any(step > 0 for step, _ in list_checkpoints(folder.checkpoints)):
            # No step depends on the selected values yet.
            return None
        remedy = "restore it, or train again with overwrite=true"
        raise UnreadableFile(folder.selection, error.why, remedy) from error
    return None if selected is None else _fill_in(experiment, selected)


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
        return {name: check(name, record["chosen"][name]) for name, check in CHECKS.items()}
    except UnreadableFile:
        raise
    except (KeyError, TypeError, InputError) as error:
        why = error.problem if isinstance(error, InputError) else "it does not hold the selected values"
        raise UnreadableFile(folder.selection, why) from error


def run_selection(experiment: Experiment, folder: RunFolder, threads: int, stop: StopRequest) -> Experiment:
    """Select the settings that are null, write selection.json, and return the experiment with the selected values."""
    start = time.monotonic()
    notice_time = start

    def progress(text: str) -> None:
        nonlocal notice_time
        stop.check()
        folder.require_held()
        if sys.stderr.isatty() or time.monotonic() - notice_time > 2:
            notice_time = time.monotonic()
            notice(text)

    # Steps are selected even if they are given, because a later command may leave them out.
    base = replace(experiment.settings, steps=None)
    # The config marks the folder as a run folder, so that an interrupted selection can be continued.
    folder.create(experiment.config)
    store = SelectionFiles(folder.checkpoints, experiment.config_identity)
    try:
        with stop.interruptible():
            selection = select(
                experiment.source, base, seed=experiment.config.seed, threads=threads, progress=progress, store=store
            )
    except Interrupted as stopped:
        remedy = f"the same command continues the selection (candidate results stored: {len(store)})"
        if experiment.config.overwrite:
            # The new run was prepared in a separate folder, which is deleted.
            remedy = "the same command starts again (the old run is unchanged)"
        raise StoppedBySignal(stopped.signal, "stopped during the selection", remedy) from stopped
    selected = {name: asdict(selection.settings)[name] for name in CHECKS}
    seconds = round(time.monotonic() - start, 3)
    record = {"format": SELECTION_FORMAT, "chosen": selected, "seconds": seconds, "candidates": list(selection.table)}
    folder.require_held()
    write_json(folder.selection, record)
    store.clear()
    numbers = ", ".join(f"{name}={selected[name]:g}" for name in CHECKS if name in experiment.config.selected)
    notice(f"selected {numbers} in {seconds:.1f} s, on a held-out quarter of the training part (selection.json)")
    return _fill_in(experiment, selected)


def _fill_in(experiment: Experiment, selected: dict[str, Any]) -> Experiment:
    """Return the experiment with the selected values filled in for settings that are null; other settings are kept."""
    values = {name: selected[name] for name in experiment.config.selected}
    return replace(experiment, settings=replace(experiment.settings, **values))
