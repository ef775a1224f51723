"""Read the metrics of all runs of a sweep into one table, from which the combined plots are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from proxlearn.files.safe_read import AbsentFile, UnreadableFile
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import JobState
from proxlearn.terminal.streams import notice
from proxlearn.views.run.run_data import read_metrics

REPEATS = ("seed", "split_seed")
"""Swept keys that repeat an experiment instead of changing it; the plots show means over their values."""


@dataclass(frozen=True)
class SweepData:
    """The concatenated metrics of all jobs of a sweep, with the swept values as columns."""

    path: Path
    parameters: list[str]
    """Swept keys other than the repeats; the key with the most values comes first and is shown by colour."""
    metrics: pd.DataFrame

    @property
    def final(self) -> pd.DataFrame:
        """The newest row of each job."""
        return self.metrics.loc[self.metrics.groupby("job")["step"].idxmax()]

    def values(self, parameter: str) -> list[str]:
        """Return the values of a swept key: numbers in ascending order, others in the order of the sweep."""
        values = list(dict.fromkeys(self.metrics[parameter]))
        return sorted(values, key=float) if is_numeric(values) else values


def read_sweep(folder: Path, states: list[JobState]) -> SweepData | None:
    """Read the metrics that the jobs have logged so far; return None if there are none."""
    tables = []
    for state in states:
        if state.run is None or state.job.same_as is not None:
            continue
        try:
            metrics = read_metrics(RunFolder(state.run.folder).metrics)
        except AbsentFile:
            continue
        except UnreadableFile as error:
            notice(f"job {state.job.number} is not drawn: {error.problem}")
            continue
        metrics = metrics.assign(job=state.job.number)
        for key, value in state.job.values.items():
            metrics[key] = value
        tables.append(metrics)
    if not tables:
        return None
    combined = pd.concat(tables, ignore_index=True)
    parameters = varied_keys(states)
    parameters.sort(key=lambda key: -combined[key].nunique())
    return SweepData(folder, parameters, combined)


def varied_keys(states: list[JobState]) -> list[str]:
    """Return the swept keys that change the experiment; they are the same for all jobs of a sweep."""
    return [key for key in states[0].job.values if key not in REPEATS]


def is_numeric(values: list[str]) -> bool:
    """Return whether all values are numbers."""
    try:
        return all(float(value) == float(value) for value in values)
    except ValueError:
        return False
