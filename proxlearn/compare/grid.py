"""Create the cells of a comparison, and run the jobs that compute missing results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from proxlearn.compare.cells import Cell
from proxlearn.compare.measure import run_cell
from proxlearn.compare.spec import AUTHORS, AUTHORS_SEEDS, LOG, ComparisonSpec, SplitName, scaling_of
from proxlearn.compare.splits import split_of
from proxlearn.config.schema import DatasetConfig
from proxlearn.data import registry
from proxlearn.jobs.job import Job
from proxlearn.jobs.records import JobRecords
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.jobs.runner import JobLauncher, JobsOutcome, run_jobs

JOBS_FOLDER = ".proxlearn-jobs"
"""Name of a subfolder that the output folder contains only while cells are computed."""
PRELOAD = (
    "proxlearn.compare.measure",
    "proxlearn.baselines.proxlearn_networks",
    "proxlearn.core.fused.fused_step",
    "sklearn.calibration",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.svm",
)
"""Modules that are imported once for all processes, so that processes start fast and no import counts as training
time."""


def grid_cells(spec: ComparisonSpec, splits: ResultCache) -> list[Cell]:
    """Return all cells of a comparison, ordered by split, so that an interrupted comparison covers all methods."""
    tables = {config.name: registry.load(config) for config in spec.datasets}
    cells = []
    for config, name in dataset_splits(spec):
        table = tables[config.name]
        split = split_of(splits, table, config, name)
        for method in spec.methods:
            if method.only and config.name not in method.only:
                continue
            cells.append(
                Cell(
                    method,
                    config,
                    table.sha256,
                    name,
                    split.sha256,
                    len(split.test) / len(split.train),
                    scaling_of(spec.protocol, method, config.name),
                    spec.preset,
                    spec.temperature,
                )
            )
    return cells


def dataset_splits(spec: ComparisonSpec) -> Iterator[tuple[DatasetConfig, SplitName]]:
    """Yield every pair of a dataset and one of its splits, ordered by split; the split of the authors is last."""
    for number in range(max((spec.splits, *spec.exceptions.values()))):
        for config in spec.datasets:
            if number < spec.exceptions.get(config.name, spec.splits):
                yield config, number
    for config in spec.datasets if spec.authors else ():
        if config.name in AUTHORS_SEEDS:
            yield config, AUTHORS


def missing_cells(cells: Sequence[Cell], cache: ResultCache) -> list[Cell]:
    """Return the cells that have no valid result, and remove damaged results from the cache."""
    missing = [cell for cell in cells if cell.stored_result(cache) is None]
    for cell in missing:
        cache.remove(cell.identity)
    return missing


def run_cells(cells: Sequence[Cell], output: Path, cache: ResultCache, launcher: JobLauncher) -> JobsOutcome:
    """Compute each cell in a separate process, store the results in the cache, and return the outcome of the jobs."""
    jobs = [
        Job(cell.key, cell.title, run_cell, (cell, output), identity=cell.identity, log=output / LOG) for cell in cells
    ]
    records = JobRecords(output / JOBS_FOLDER)
    outcome = run_jobs(jobs, records.folder, launcher, cache=cache, preload=PRELOAD, caption="compare")
    for job in jobs:
        records.remove(job.name)
    records.remove_folder()
    return outcome
