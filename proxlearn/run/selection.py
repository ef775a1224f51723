"""selection.json: what a run that leaves numbers open chose for them, and from what. Chosen once, then kept."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from typing import Any

from proxlearn.checks import integer, real
from proxlearn.errors import InputError, ProxlearnError
from proxlearn.fit.select import select
from proxlearn.notice import notice
from proxlearn.run.experiment import Experiment
from proxlearn.run.files import write_json
from proxlearn.run.folder import RunFolder
from proxlearn.run.signals import StopRequest

FORMAT = "proxlearn-selection-1"
POSITIVE = real(above=0, example=1.0)
CHECKS = dict.fromkeys(("init_scale", "h", "beta", "epsilon"), POSITIVE) | {"steps": integer(at_least=0, example=1)}


class StoppedEarly(ProxlearnError):
    """A signal came before there was anything to store."""

    def __init__(self, signal: int) -> None:
        super().__init__("stopped during the selection", "the same command begins it again")
        self.exit_code = 128 + signal


def settled(experiment: Experiment, folder: RunFolder) -> Experiment | None:
    """The experiment with every number known: given, or chosen in an earlier session; None where it must be chosen."""
    if not experiment.config.selected:
        return experiment
    chosen = read_chosen(folder)
    return None if chosen is None else _with(experiment, chosen)


def read_chosen(folder: RunFolder) -> dict[str, Any] | None:
    """What an earlier session chose, by the keys of a config."""
    try:
        stored = json.loads(folder.selection.read_text(encoding="utf-8"))
        if stored["format"] != FORMAT:
            return None
        return {name: check(name, stored["chosen"][name]) for name, check in CHECKS.items()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, InputError):
        return None


def choose(experiment: Experiment, folder: RunFolder, threads: int, stop: StopRequest) -> Experiment:
    """Select from the training part, write down what was chosen and why, and say it."""
    start = time.monotonic()
    shown = start

    def progress(text: str) -> None:
        nonlocal shown
        if stop.signal is not None:
            raise StoppedEarly(stop.signal)
        if sys.stderr.isatty() or time.monotonic() - shown > 2:
            shown = time.monotonic()
            notice(text)

    # Steps are chosen even where some are given: the run may be asked for without them later.
    base = replace(experiment.settings, steps=None)
    found = select(experiment.source, base, seed=experiment.config.seed, threads=threads, progress=progress)
    chosen = {name: asdict(found.settings)[name] for name in CHECKS}
    seconds = round(time.monotonic() - start, 3)
    record = {"format": FORMAT, "chosen": chosen, "seconds": seconds, "candidates": list(found.table)}
    write_json(folder.selection, record)
    numbers = ", ".join(f"{name}={chosen[name]:g}" for name in CHECKS if name in experiment.config.selected)
    notice(f"selected {numbers} in {seconds:.1f} s, on a held-out quarter of the training part (selection.json)")
    return _with(experiment, chosen)


def _with(experiment: Experiment, chosen: dict[str, Any]) -> Experiment:
    """What the config leaves open, filled in; what it gives stays."""
    values = {name: chosen[name] for name in experiment.config.selected}
    return replace(experiment, settings=replace(experiment.settings, **values))
