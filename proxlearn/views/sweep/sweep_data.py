"""The runs of a sweep, side by side: what its combined plots are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from proxlearn.files.safe_read import AbsentFile, UnreadableFile
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import JobState
from proxlearn.terminal.notice import notice
from proxlearn.views.run.run_data import read_metrics

REPEATS = ("seed", "split_seed")
"""Swept keys that repeat an experiment and do not change it: lines are means over them."""


@dataclass(frozen=True)
class Sweep:
    """Every metrics.csv below the other, with the job's swept values as columns."""

    path: Path
    parameters: list[str]
    """Swept keys that are not repeats, the one with most values first: it gets the colours."""
    metrics: pd.DataFrame

    @property
    def final(self) -> pd.DataFrame:
        """The newest row of each job."""
        return self.metrics.loc[self.metrics.groupby("job")["step"].idxmax()]

    def values(self, parameter: str) -> list[str]:
        """In the order of numbers, where they are numbers; otherwise as given."""
        found = list(dict.fromkeys(self.metrics[parameter]))
        return sorted(found, key=float) if is_numeric(found) else found


def read_sweep(folder: Path, states: list[JobState]) -> Sweep | None:
    """Whatever the jobs have logged so far; None where none has."""
    parts = []
    for state in states:
        if state.run is None or state.job.same_as is not None:
            continue
        try:
            parts.append(read_metrics(RunFolder(state.run.folder).metrics).assign(job=state.job.number))
        except AbsentFile:
            continue
        except UnreadableFile as error:
            notice(f"job {state.job.number} is not drawn: {error.problem}")
            continue
        for key, value in state.job.values.items():
            parts[-1][key] = value
    if not parts:
        return None
    metrics = pd.concat(parts, ignore_index=True)
    parameters = [key for key in states[0].job.values if key not in REPEATS]
    parameters.sort(key=lambda key: -metrics[key].nunique())
    return Sweep(folder, parameters, metrics)


def is_numeric(values: list[str]) -> bool:
    try:
        return all(float(value) == float(value) for value in values)
    except ValueError:
        return False
