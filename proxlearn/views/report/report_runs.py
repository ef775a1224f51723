"""Gather the runs of a report page from run and sweep folders, with the settings in which the runs differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxlearn.config.run_name import NOT_TRAJECTORY
from proxlearn.errors import InputError
from proxlearn.files.safe_read import absolute_folder
from proxlearn.run.observed_status import RunSnapshot, take_snapshot
from proxlearn.run.overwrite import is_interrupted, refuse_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.sweep_folder import JobState, SweepFolder, SweepJob
from proxlearn.views.run.run_data import RunData, read_run_data

IGNORED_KEYS = (*NOT_TRAJECTORY, "device")
"""Settings that do not distinguish one experiment from another."""
SINGLE_RUNS = "runs"
"""Heading of the table of runs whose folders were given individually."""
MOST_NAMED = 6
"""Maximum number of differing settings that form the name of a run; if more settings differ, its title is the name."""


@dataclass(frozen=True)
class RunEntry:
    """A run on the report page."""

    run: RunData
    state: str
    values: dict[str, str]
    """Values of this run for the settings that differ between the runs, by key."""
    name: str
    """Name of the run, which is unique on the page."""


@dataclass(frozen=True)
class ReportRuns:
    """All runs of a report page."""

    runs: list[RunEntry]
    tables: dict[str, list[JobState]]
    """Rows of each table by heading: one table per sweep, and one if several runs were given individually."""
    parameters: list[str]
    """Settings that differ between the runs; the page can show each of them by colour."""

    @property
    def title(self) -> str:
        if len(self.runs) == 1:
            return self.runs[0].run.title
        datasets = dict.fromkeys(str(entry.run.config["dataset"]["name"]) for entry in self.runs)
        return f"{', '.join(datasets)}: {len(self.runs)} runs"


@dataclass(frozen=True)
class _Source:
    """A run with its current state, and its job if it belongs to a sweep."""

    run: RunData
    snapshot: RunSnapshot
    state: JobState | None


def gather_runs(folders: list[Path]) -> ReportRuns:
    """Return the runs in the given folders; jobs without logged metrics appear only in the table of their sweep."""
    sources: dict[Path, _Source] = {}
    sweeps: dict[Path, list[JobState]] = {}
    for folder in map(absolute_folder, folders):
        if not SweepFolder(folder).plan.is_file():
            sources.setdefault(folder, _Source(read_run(folder), take_snapshot(folder), None))
            continue
        sweeps[folder] = SweepFolder(folder).look()
        for job_state in sweeps[folder]:
            run = job_state.run
            if run is not None and job_state.job.same_as is None and has_rows(run.folder):
                sources[run.folder] = _Source(read_run(run.folder), run, job_state)
    if not sources:
        raise InputError("no run has results in " + ", ".join(map(str, folders)), "wait until a run has logged metrics")
    settings = {path: flatten(source.run.config) for path, source in sources.items()}
    swept = dict.fromkeys(str(key) for source in sources.values() if source.state for key in source.state.job.values)
    parameters = list(swept) or _differing_keys(list(settings.values()))
    runs: dict[str, RunEntry] = {}
    single: list[JobState] = []
    for path, source in sources.items():
        job_values = {str(key): str(value) for key, value in source.state.job.values.items()} if source.state else {}
        values = {key: job_values.get(key, str(settings[path].get(key, ""))) for key in parameters}
        name = _unique_name(source.run, values, runs)
        snapshot, state = source.snapshot, source.state
        runs[name] = RunEntry(source.run, state.state if state else snapshot.state, values, name)
        if state is None:
            columns = values if len(values) <= MOST_NAMED else {"run": name}
            job = SweepJob(len(runs), columns, snapshot.steps)
            single.append(JobState(job, snapshot.state, snapshot.error, snapshot))
    tables = {folder.name: states for folder, states in sweeps.items()}
    return ReportRuns(list(runs.values()), tables | ({SINGLE_RUNS: single} if len(single) > 1 else {}), parameters)


def read_run(path: Path) -> RunData:
    """Read a run folder; raise InputError if it has no logged rows, is partly overwritten or contains symlinks."""
    refuse_interrupted(path)
    if not has_rows(path):
        raise InputError(
            f"{path} is not a run folder with results (metrics.csv is absent or empty)",
            "give a folder that `proxlearn train` created",
        )
    RunFolder(path).refuse_links()
    return read_run_data(path)


def has_rows(path: Path) -> bool:
    """Return whether a run has logged metrics."""
    metrics = RunFolder(path).metrics
    return not is_interrupted(path) and metrics.is_file() and metrics.stat().st_size > 0


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one dictionary with dotted keys, as in command-line overrides."""
    settings: dict[str, Any] = {}
    for key, value in config.items():
        settings |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return settings


def _unique_name(run: RunData, values: dict[str, str], taken: dict[str, RunEntry]) -> str:
    """Return a unique name: the settings that differ between the runs, or the title if none or too many differ."""
    by_settings = ", ".join(f"{key}={value}" for key, value in values.items())
    name = by_settings if values and len(values) <= MOST_NAMED else run.title
    return name if name not in taken else f"{name} ({run.path.name}, {len(taken)})"


def _differing_keys(settings: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for config in settings for key in config)
    differing = [key for key in keys if len({str(config.get(key)) for config in settings}) > 1]
    return [key for key in differing if key.partition(".")[0] not in IGNORED_KEYS]
