"""Run fits of recipe=tuned over several splits, cache their results, and write a page about them.

Every fit is a job (see proxlearn/jobs). Its result is stored in FOLDER/NAME/results.jsonl, under a key that covers
everything that affects the result. An interrupted measurement can therefore be continued, and the page FOLDER/NAME.md
can be written without new fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from proxlearn.config.compose import compose, parse
from proxlearn.config.run_name import trajectory
from proxlearn.config.schema import TrainConfig
from proxlearn.data import registry
from proxlearn.data.prepare import PreparedData
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_atomically
from proxlearn.jobs.job import Job
from proxlearn.jobs.launchers import LocalPool
from proxlearn.jobs.result_cache import ResultCache, canonical_json
from proxlearn.jobs.runner import run_jobs
from proxlearn.run.config_validation import validate_config
from proxlearn.run.folder_recognition import begins_with
from proxlearn.run.lock import FolderLock

HALF = ("dataset.split=shuffled", "dataset.train_fraction=0.5")
"""Overrides that split a dataset into random halves."""
PRELOAD = ("proxlearn.paper.repeated_fits", "proxlearn.run.experiment", "proxlearn.core.fused.fused_step")

FitResult = dict[str, Any]


@dataclass(frozen=True)
class FitMeasurement:
    """A measurement: a page of results, and the fits whose results the page shows."""

    name: str
    title: str
    splits: int
    """Number of splits per dataset, with the seeds 0, 1, ..."""
    overrides: Mapping[str, tuple[str, ...]]
    """Overrides that define the random splits of each dataset. A dataset without overrides has one split, and its fits
    differ in the seed of the initial cloud and of the noise."""
    fit: Callable[[TrainConfig], FitResult]
    """Function that fits one split and returns its results; it must be importable."""
    revision: int
    """Revision of the recursion and the selection, increased whenever their results change."""
    body: Callable[[Mapping[str, list[FitResult]]], str]
    """Function that returns the text of the page below its title, given the results per dataset."""
    common: tuple[str, ...] = ()
    """Overrides that apply to every fit."""
    further: tuple[FitMeasurement, ...] = ()
    """Measurements of the same splits with other settings. The results of a further measurement are stored in the same
    file and merged into the results of the same split; ``body`` must accept splits without these results."""

    def config(self, dataset: str, split: int) -> TrainConfig:
        """Return the config of one fit, before hyperparameters are selected."""
        base = _compose((f"dataset={dataset}", "recipe=tuned", *self.common, *self.overrides[dataset]))
        return replace(base, split_seed=split, seed=0 if self.overrides[dataset] else split)

    def identity(self, dataset: str, split: int) -> dict[str, Any]:
        """Return all values that determine the result of a fit, except the data."""
        settings = trajectory(self.config(dataset, split))
        return {"measurement": self.name, "revision": self.revision, "settings": settings}

    def measure(self, folder: Path, parallel: int) -> int:
        """Run the fits whose results are not in the cache, and return an exit code."""
        self._refuse_foreign_page(folder)
        place = folder / self.name
        place.mkdir(parents=True, exist_ok=True)
        with FolderLock(place):
            jobs = [job for number, part in enumerate((self, *self.further)) for job in part._jobs(number)]
            cached = ResultCache(self._results(folder))
            launcher = LocalPool(parallel, threads=1)
            return run_jobs(
                jobs, place / ".proxlearn-jobs", launcher, cache=cached, preload=PRELOAD, caption=self.name
            ).exit_code

    def _jobs(self, number: int) -> list[Job]:
        """Return the jobs of all fits; ``number`` distinguishes the measurements whose jobs run in the same folder."""
        jobs = []
        for dataset in self.overrides:
            for split in range(self.splits):
                config = self.config(dataset, split)
                identity = self.identity(dataset, split) | {"data_sha256": registry.load(config.dataset).sha256}
                name = f"{dataset}-{split:02d}" + (f"-{number}" if number else "")
                jobs.append(Job(name, f"{dataset} {split}", self.fit, (config,), identity))
        return jobs

    def results(self, folder: Path) -> dict[str, list[FitResult]]:
        """Return the stored results per dataset, in the order of the splits; the data files are not needed."""
        stored = {}
        for record in ResultCache(self._results(folder)):
            identity = {key: value for key, value in record.identity.items() if key != "data_sha256"}
            stored[canonical_json(identity)] = record.result
        results = {}
        for dataset in self.overrides:
            fits = []
            for split in range(self.splits):
                parts = [
                    stored.get(canonical_json(part.identity(dataset, split)))
                    for part in (self, *self.further)
                    if dataset in part.overrides and split < part.splits
                ]
                if parts[0] is not None:
                    fits.append({name: value for part in parts if part is not None for name, value in part.items()})
            results[dataset] = fits
        return {dataset: fits for dataset, fits in results.items() if fits}

    def write(self, folder: Path) -> Path | None:
        """Write the page from the stored results and return its path, or None if there are no results."""
        results = self.results(folder)
        if not results:
            return None
        self._refuse_foreign_page(folder)
        write_atomically(self._page(folder), f"# {self.title}\n\n{self.body(results)}".encode())
        return self._page(folder)

    def _page(self, folder: Path) -> Path:
        return folder / f"{self.name}.md"

    def _results(self, folder: Path) -> Path:
        return folder / self.name / "results.jsonl"

    def _refuse_foreign_page(self, folder: Path) -> None:
        path, start = self._page(folder), re.compile(rb"# %s\n" % re.escape(self.title.encode()))
        if path.exists() and not begins_with(path, start):
            raise InputError(f"{path} is not a page of `proxlearn paper {self.name}`", "choose another --into FOLDER")


@cache
def _compose(overrides: tuple[str, ...]) -> TrainConfig:
    return validate_config(compose(parse(list(overrides))))


def majority_accuracy(prepared: PreparedData) -> float | None:
    """Return the test accuracy of always predicting the most frequent training class, or None for a real target."""
    train, test = prepared.train.labels, prepared.test.labels
    if train is None or test is None:
        return None
    return float((test == train.mode().values).double().mean())
