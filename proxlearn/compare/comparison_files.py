"""Read and write a comparison, and recognise its files, so that no other file is replaced or deleted.

The caches, the plan and the log are recognised by their first bytes. Tables and plots are listed in the plan in the
same folder. Version 0.1.0 wrote one file per cell and per split (cells/, splits/); these files are neither read nor
changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proxlearn.baselines.registry import OURS, Block, Method
from proxlearn.compare.cells import Cell, CellResult, parse_result
from proxlearn.compare.spec import AUTHORS, CELLS, LOG, SPLITS, ComparisonSpec, SplitName
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.run.folder_recognition import PLAN_START, RESULTS_START, begins_with, is_lock, is_regular

PLAN = "plan.json"
UNREADABLE = (UnreadableFile, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""Errors that can occur when a JSON file with arbitrary content is read."""
BLOCK_FILES: dict[Block, str] = {"network": "networks", "sampler": "samplers"}
"""File names of the tables and plots of each block, without suffix."""
REFERENCES = "references"
"""File name, without suffix, for a comparison that has only reference methods."""
ENDINGS = ("csv", "tex", "png", "pdf")
LOG_START = re.compile(rb"[^\n]+, split \w+, [^\n]+ \.\.\.\n|\Z")
"""Pattern of the first line of the log (see measure.run_cell); the log is empty if its process was killed early."""
REMEDY = "move it elsewhere, or choose another --output"


def table_names(blocks: Collection[str], protocol: str) -> list[str]:
    """Return the file names of the tables and plots of a comparison with methods in ``blocks``."""
    stems = [stem for block, stem in BLOCK_FILES.items() if block in blocks] or [REFERENCES]
    paper = ["paper.csv", "paper.tex"] if protocol == "paper" else []
    return ["compare.md", *(f"{stem}.{ending}" for stem in stems for ending in ENDINGS), *paper]


KNOWN_NAMES = {*table_names(BLOCK_FILES, "paper"), *table_names((), "paper")}


def recorded_names(folder: Path) -> set[str]:
    """Return the names of the files in ``folder`` that the plan lists as tables and plots written by the command.

    A plan of version 0.1.0 has no list; the names are then derived from the methods in the plan.
    """
    if not begins_with(folder / PLAN, PLAN_START):
        return set()
    try:
        plan = read_json(folder / PLAN)
        if "files" in plan:
            names = set(plan["files"])
        else:
            names = set(table_names({method["block"] for method in plan["methods"]}, plan["protocol"]))
    except UNREADABLE:
        return set()
    # An edited plan must not lead to the deletion of other files.
    return {name for name in names & KNOWN_NAMES if is_regular(folder / name)}


def record_names(folder: Path, names: Iterable[str]) -> None:
    """Store ``names`` in the plan of ``folder`` as the files that the command wrote."""
    plan = read_json(folder / PLAN)
    files = sorted(names)
    if plan.get("files") != files:
        write_json(folder / PLAN, plan | {"files": files})


def refuse_foreign_files(spec: ComparisonSpec, output: Path) -> None:
    """Raise InputError if the command would overwrite a file that `proxlearn compare` did not write."""
    tables = output / spec.name
    for folder in (output, tables):
        if os.path.lexists(folder) and not folder.is_dir():
            raise InputError(f"{folder} is not a folder", REMEDY)
    starts = {
        output / LOG: LOG_START,
        tables / PLAN: PLAN_START,
        output / CELLS: RESULTS_START,
        output / SPLITS: RESULTS_START,
    }
    foreign = [path for path, start in starts.items() if os.path.lexists(path) and not begins_with(path, start)]
    lock = output / ".lock"
    if os.path.lexists(lock) and not is_lock(lock):
        foreign.append(lock)
    refuse_paths(foreign)
    refuse_foreign_tables(tables, table_names({method.block for method in spec.methods}, spec.protocol))


def refuse_foreign_tables(folder: Path, names: Iterable[str]) -> None:
    recorded = recorded_names(folder)
    refuse_paths(folder / name for name in names if name not in recorded and os.path.lexists(folder / name))


def refuse_paths(foreign: Iterable[Path]) -> None:
    """Raise InputError if ``foreign``, the paths that `proxlearn compare` did not write, is not empty."""
    paths = list(foreign)
    if paths:
        if len(paths) == 1:
            raise InputError(f"{paths[0]} was not written by `proxlearn compare`", REMEDY)
        problem = f"{len(paths)} files, such as {paths[0]}, were not written by `proxlearn compare`"
        raise InputError(problem, "move them elsewhere, or choose another --output")


@dataclass(frozen=True)
class ComparedCell:
    """A cell of a comparison, with the values that the tables and plots show."""

    dataset: str
    method: str
    split: SplitName
    test_share: float
    result: CellResult | None
    """Result of the cell; None if the cell has not finished."""
    error: str | None = None
    """The error message if the cell failed; otherwise None."""


@dataclass(frozen=True)
class Comparison:
    """The plan of a comparison, and the results of its cells."""

    path: Path
    command: str
    protocol: str
    preset: str
    temperature: float
    splits: int
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    cells: tuple[ComparedCell, ...]
    ours: dict[str, Any]
    """Results of runs with the paper's settings, by dataset; empty without such runs (see commands/compare.py)."""
    exceptions: dict[str, int] = field(default_factory=dict)
    """Number of splits by dataset, for each dataset that does not have ``splits`` splits."""
    files: list[str] = field(default_factory=list)
    """Names of the tables and plots that the command wrote; empty for plans of version 0.1.0."""

    def splits_of(self, dataset: str) -> int:
        return self.exceptions.get(dataset, self.splits)

    @property
    def has_ours(self) -> bool:
        """Whether ProxLearn is among the methods; differences are shown only in that case."""
        return any(method.name == OURS for method in self.methods)

    @property
    def splits_text(self) -> str:
        """The number of splits as text, followed by the datasets in ``exceptions`` with their numbers of splits."""
        others = ", ".join(f"{name} {number}" for name, number in self.exceptions.items())
        return f"{self.splits}" + (f" ({others})" if others else "")

    def values(self, dataset: str, method: str, measure: str) -> dict[int, float]:
        """Return the values of one metric by random split, for the cells that have finished."""
        values = self._values(dataset, method, measure)
        return {split: value for split, value in values.items() if split != AUTHORS}

    def authors(self, dataset: str, method: str, measure: str) -> float | None:
        """Return the value of a metric on the split of the samplers' authors, or None if there is no finished cell."""
        return self._values(dataset, method, measure).get(AUTHORS)

    def _values(self, dataset: str, method: str, measure: str) -> dict[SplitName, float]:
        return {
            cell.split: cell.result.figures[measure]
            for cell in self.cells
            if (cell.dataset, cell.method) == (dataset, method) and cell.result is not None
        }

    def test_share(self, dataset: str) -> float:
        return next(cell.test_share for cell in self.cells if cell.dataset == dataset)


def write_plan(
    spec: ComparisonSpec,
    cells: Sequence[Cell],
    output: Path,
    command: str,
    ours: dict[str, Any],
    errors: Mapping[str, str] | None = None,
) -> Path:
    """Write plan.json into the folder of the tables and return this folder.

    ``errors`` maps the keys of failed cells to error messages.
    """
    folder = output / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "command": command,
        "protocol": spec.protocol,
        "preset": spec.preset,
        "temperature": spec.temperature,
        "splits": spec.splits,
        "exceptions": spec.exceptions,
        "datasets": [config.name for config in spec.datasets],
        "methods": [asdict(method) for method in spec.methods],
        "cells": [_cell_values(cell, (errors or {}).get(cell.key)) for cell in cells],
        "ours": ours,
        "files": sorted(recorded_names(folder)),
    }
    write_json(folder / PLAN, values)
    return folder


def _cell_values(cell: Cell, error: str | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "dataset": cell.dataset.name,
        "method": cell.method.name,
        "split": cell.split,
        "test_share": cell.test_share,
        "key": cell.key,
    }
    return values if error is None else values | {"error": error}


def read_comparison(folder: Path) -> Comparison:
    """Return the comparison whose tables are in ``folder``; the cache of results is in the parent folder."""
    try:
        values = read_json(folder / PLAN)
        results = {record.key: parse_result(record.result) for record in ResultCache(folder.parent / CELLS)}
        cells = [
            ComparedCell(
                cell["dataset"],
                cell["method"],
                cell["split"],
                cell["test_share"],
                results.get(cell["key"]),
                cell.get("error"),
            )
            for cell in values.pop("cells")
        ]
        methods = tuple(Method(**{**method, "only": tuple(method["only"])}) for method in values.pop("methods"))
        datasets = tuple(values.pop("datasets"))
        return Comparison(folder, datasets=datasets, methods=methods, cells=tuple(cells), **values)
    except UNREADABLE as error:
        problem = f"{folder / PLAN} cannot be read ({type(error).__name__})"
        raise InputError(problem, "repeat the `proxlearn compare ...` command") from error
