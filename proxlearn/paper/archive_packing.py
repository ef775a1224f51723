"""Pack run folders into the archive."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.core.cloud import PointCloud
from proxlearn.core.schedules import is_film
from proxlearn.errors import InputError
from proxlearn.files.safe_read import MAX_TABLE_BYTES, AbsentFile, read_json, read_text
from proxlearn.paper.archive import Archive
from proxlearn.paper.archive_files import PackedRun, TextTable
from proxlearn.paper.free_energy import free_energy_table
from proxlearn.paper.run_plan import PLAN, RUNS_FOLDER, PlannedRun
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints
from proxlearn.run.experiment import build_experiment
from proxlearn.run.metrics import VERSION, metrics_file_version
from proxlearn.run.resume_point import read_identity, require_same_run
from proxlearn.run.run_folder import RunFolder
from proxlearn.terminal.streams import notice
from proxlearn.views.run.run_data import read_run_data

OMITTED_KEYS = ("pid", "host", "settings", "retention", "protected")
"""Keys of status.json that are not archived, because they are unrelated to the result or repeat the config."""


def pack_new_runs(archive: Archive, quick: bool) -> None:
    """Pack every finished run of the plan that is not yet in the archive.

    If ``quick`` is true, only the runs of `proxlearn paper --quick` are considered.
    """
    if (archive.root / RUNS_FOLDER).is_dir():
        pack_runs(archive, (run for entry in PLAN for run in entry.runs(archive.root, quick)))


def pack_runs(archive: Archive, runs: Iterable[PlannedRun]) -> None:
    """Pack the finished runs that are not yet in the archive; a run that cannot be read is reported and skipped.

    Unfinished runs are not packed, because a table row with an unfinished run has no verdict.
    """
    packed_runs = defaultdict(list)
    for run in runs:
        stored = archive.find(run.experiment, run.name)
        if _is_new(run.folder, None if stored is None else stored.status):
            try:
                packed_runs[run.experiment].append(pack_run(run))
            except InputError as error:
                notice(f"{run.name} was not packed: {error}")
    for experiment, new_runs in packed_runs.items():
        archive.add(experiment, new_runs)


def pack_run(run: PlannedRun) -> PackedRun:
    """Read the folder of a run and return the run in the form that the archive stores."""
    data = read_run_data(run.folder)
    folder = RunFolder(run.folder)
    metrics = read_text(folder.metrics, MAX_TABLE_BYTES)
    if metrics_file_version(metrics.partition("\n")[0]) != VERSION:
        problem = f"{folder.metrics} was written by version 0.1.0"
        raise InputError(problem, f"continue the run with `proxlearn resume {run.folder}`")
    clouds = _nearest_clouds(folder, run.cloud_steps) if run.cloud_steps else {}
    return PackedRun(
        name=run.name,
        status={key: value for key, value in data.status.items() if key not in OMITTED_KEYS},
        config=data.config,
        metrics=TextTable.parse(metrics),
        confusion=None if data.confusion is None else _matrices(data.confusion),
        model=data.model if clouds else None,
        points=TextTable.parse(read_text(folder.points, MAX_TABLE_BYTES)) if run.keeps_points else None,
        clouds=clouds,
        free_energy=_free_energy(folder) if run.keeps_free_energy else None,
    )


def _free_energy(folder: RunFolder) -> TextTable:
    """Return the free energy of the clouds that are stored for films, and of the last cloud."""
    experiment = build_experiment(folder.read_config())
    clouds = _stored_clouds(folder)
    steps = [step for step in clouds if is_film(step) or step == max(clouds)]
    return free_energy_table(experiment.source, experiment.hyper, (clouds[step] for step in steps))


def _is_new(folder: Path, stored: Mapping[str, Any] | None) -> bool:
    """Return whether the folder contains a finished run that the archive lacks or contains in another state.

    ``stored`` is the status of the archived run, or None if the archive does not contain the run. The states differ if
    the archived run is unfinished or ended at another step.
    """
    try:
        status = read_json(RunFolder(folder).status)
    except AbsentFile:
        return False
    if status.get("state") != "finished":
        return False
    return stored is None or stored["state"] != "finished" or status.get("step") != stored["step"]


def _matrices(confusion: pd.DataFrame) -> dict[str, list[list[int]]]:
    matrices: dict[str, Any] = {}
    for (part, estimate), cells in confusion.groupby(["part", "estimate"], sort=False):
        table = cells.pivot_table(index="actual", columns="predicted", values="count", aggfunc="sum")
        matrices[f"{part}/{estimate}"] = table.astype(int).to_numpy().tolist()
    return matrices


def _nearest_clouds(folder: RunFolder, steps: Iterable[int]) -> dict[int, PointCloud]:
    """Return, by step, the stored clouds of the run that are nearest to ``steps`` on a logarithmic scale.

    The initial cloud is not considered.
    """
    clouds = {step: cloud for step, cloud in _stored_clouds(folder).items() if step > 0}
    if not clouds:
        return {}
    nearest = {min(clouds, key=lambda step: abs(math.log(step / needed))) for needed in steps}
    return {step: clouds[step] for step in sorted(nearest)}


def _stored_clouds(folder: RunFolder) -> dict[int, PointCloud]:
    """Return the clouds of all valid checkpoints of the run by step, in increasing order of the steps."""
    identity, clouds = read_identity(folder), {}
    for step, path in list_checkpoints(folder.checkpoints):
        try:
            stored = checkpoint.load(path)
            require_same_run(stored.run, identity)
        except InvalidCheckpoint:
            continue
        clouds[step] = stored.cloud
    return dict(sorted(clouds.items()))
