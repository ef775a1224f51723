"""selection.json: what a run that leaves numbers open chose for them, and from what. Chosen once, then kept."""

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
    """The experiment with every number known: given, or chosen in an earlier session; None where it must be chosen."""
    if not experiment.config.selected:
        return experiment
    try:
        chosen = read_chosen(folder)
    except UnreadableFile as error:
        if not any(step > 0 for step, _ in list_checkpoints(folder.checkpoints)):
            # Nothing depends on what was chosen yet.
            return None
        remedy = "restore it, or train again with overwrite=true"
        raise UnreadableFile(folder.selection, error.why, remedy) from error
    return None if chosen is None else _with(experiment, chosen)


def read_chosen(folder: RunFolder) -> dict[str, Any] | None:
    """What an earlier session chose, by the keys of a config; UnreadableFile where the file does not tell it."""
    try:
        record = read_json(folder.selection)
    except AbsentFile:
        return None
    refuse_newer_format(folder.selection, record.get("format"), SELECTION_FORMAT)
    try:
        if record["format"] != SELECTION_FORMAT:
            raise UnreadableFile(folder.selection, f"format {record['format']!r:.60} instead of {SELECTION_FORMAT!r}")
        return {name: check(name, record["chosen"][name]) for name, check in CHECKS.items()}
    except UnreadableFile:
        raise
    except (KeyError, TypeError, InputError) as error:
        why = error.problem if isinstance(error, InputError) else "it does not say what was chosen"
        raise UnreadableFile(folder.selection, why) from error


def run_selection(experiment: Experiment, folder: RunFolder, threads: int, stop: StopRequest) -> Experiment:
    """Select from the training part, write down what was chosen and why, and say it."""
    start = time.monotonic()
    shown = start

    def progress(text: str) -> None:
        nonlocal shown
        stop.check()
        folder.require_held()
        if sys.stderr.isatty() or time.monotonic() - shown > 2:
            shown = time.monotonic()
            notice(text)

    # Steps are chosen even where some are given: the run may be asked for without them later.
    base = replace(experiment.settings, steps=None)
    # The config first: by it the folder is known as a run's, and the run can go on from there.
    folder.create(experiment.config)
    store = SelectionFiles(folder.checkpoints, experiment.asked_identity, threads)
    try:
        with stop.interruptible():
            found = select(
                experiment.source, base, seed=experiment.config.seed, threads=threads, progress=progress, store=store
            )
    except Interrupted as stopped:
        remedy = f"the same command goes on with it: {len(store)} results of candidates are kept"
        if experiment.config.overwrite:
            # The new run is made beside the old one, and is gone with its folder.
            remedy = "the old run is as it was, and the same command begins again"
        raise StoppedBySignal(stopped.signal, "stopped during the selection", remedy) from stopped
    chosen = {name: asdict(found.settings)[name] for name in CHECKS}
    seconds = round(time.monotonic() - start, 3)
    record = {"format": SELECTION_FORMAT, "chosen": chosen, "seconds": seconds, "candidates": list(found.table)}
    folder.require_held()
    write_json(folder.selection, record)
    store.clear()
    numbers = ", ".join(f"{name}={chosen[name]:g}" for name in CHECKS if name in experiment.config.selected)
    notice(f"selected {numbers} in {seconds:.1f} s, on a held-out quarter of the training part (selection.json)")
    return _with(experiment, chosen)


def _with(experiment: Experiment, chosen: dict[str, Any]) -> Experiment:
    """What the config leaves open, filled in; what it gives stays."""
    values = {name: chosen[name] for name in experiment.config.selected}
    return replace(experiment, settings=replace(experiment.settings, **values))
