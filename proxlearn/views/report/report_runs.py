"""What a page is made from: the runs of any run and sweep folders, each once, with what tells them apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxlearn.config.schema import NOT_TRAJECTORY
from proxlearn.errors import InputError
from proxlearn.files.user_paths import absolute_folder
from proxlearn.run.overwrite import is_interrupted, refuse_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.run_snapshot import RunSnapshot, take_snapshot
from proxlearn.run.sweep_folder import JobState, SweepFolder, SweepJob
from proxlearn.views.run.run_data import RunData, read_run_data

ALIKE = (*NOT_TRAJECTORY, "device")
"""Keys that do not tell one experiment from another."""


@dataclass(frozen=True)
class RunEntry:
    """A run on the page."""

    run: RunData
    state: str
    values: dict[str, str]
    """Swept key -> this run's value."""
    name: str
    """What it is called among the others."""


@dataclass(frozen=True)
class ReportRuns:
    """Everything that one page shows."""

    runs: list[RunEntry]
    tables: dict[str, list[JobState]]
    """Sweeps, and the runs that were named one by one: each becomes a table."""
    parameters: list[str]
    """What differs between the runs: each can be shown as colour."""

    @property
    def title(self) -> str:
        if len(self.runs) == 1:
            return self.runs[0].run.title
        names = dict.fromkeys(str(shown.run.config["dataset"]["name"]) for shown in self.runs)
        return f"{', '.join(names)}: {len(self.runs)} runs"


def gather_runs(folders: list[Path]) -> ReportRuns:
    """Read all folders; jobs of a sweep that have logged nothing yet are left out, and stand in its table only."""
    found: dict[Path, tuple[RunData, RunSnapshot, JobState | None]] = {}
    sweeps: dict[Path, list[JobState]] = {}
    for folder in (absolute_folder(given) for given in folders):
        if not SweepFolder(folder).plan.is_file():
            found.setdefault(folder, (read_run(folder), take_snapshot(folder), None))
            continue
        sweeps[folder] = SweepFolder(folder).look()
        for each in sweeps[folder]:
            if each.run is not None and each.job.same_as is None and has_rows(each.run.folder):
                found[each.run.folder] = (read_run(each.run.folder), each.run, each)
    if not found:
        raise InputError("there is no run with results in " + ", ".join(map(str, folders)), "wait for its first row")
    flats = {path: flat(run.config) for path, (run, _, _) in found.items()}
    swept = dict.fromkeys(str(key) for _, _, state in found.values() if state for key in state.job.values)
    parameters = list(swept) or _differing(list(flats.values()))
    runs: dict[str, RunEntry] = {}
    alone: list[JobState] = []
    for path, (run, observed, state) in found.items():
        own = {str(key): str(value) for key, value in state.job.values.items()} if state else {}
        values = {key: own.get(key, str(flats[path].get(key, ""))) for key in parameters}
        name = ", ".join(f"{key}={value}" for key, value in values.items()) or run.title
        name = name if name not in runs else f"{name} ({path.name}, {len(runs)})"
        runs[name] = RunEntry(run, state.state if state else observed.state, values, name)
        if state is None:
            alone.append(
                JobState(SweepJob(len(runs), values, observed.steps), observed.state, observed.error, observed)
            )
    tables = {folder.name: states for folder, states in sweeps.items()}
    return ReportRuns(list(runs.values()), tables | ({"runs": alone} if len(alone) > 1 else {}), parameters)


def read_run(path: Path) -> RunData:
    """A run folder that anybody may have written: what cannot be shown is refused in one line."""
    refuse_interrupted(path)
    if not has_rows(path):
        raise InputError(f"{path} is not a run folder with results (no rows in metrics.csv)", "name one `train` made")
    RunFolder(path).refuse_links()
    return read_run_data(path)


def has_rows(path: Path) -> bool:
    metrics = RunFolder(path).metrics
    return not is_interrupted(path) and metrics.is_file() and metrics.stat().st_size > 0


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted keys, as one overrides them."""
    made: dict[str, Any] = {}
    for key, value in config.items():
        made |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return made


def _differing(configs: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for config in configs for key in config)
    different = [key for key in keys if len({str(config.get(key)) for config in configs}) > 1]
    return [key for key in different if key.partition(".")[0] not in ALIKE]
