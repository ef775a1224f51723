"""Read and write a comparison; plan.json lists its cells, and the cache in the parent folder contains their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proxlearn.baselines.method import Method
from proxlearn.baselines.registry import OURS
from proxlearn.compare.cells import Cell, CellResult, parse_result
from proxlearn.compare.foreign_files import PLAN, UNREADABLE, recorded_names
from proxlearn.compare.spec import AUTHORS, CELLS, ComparisonSpec, SplitName
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import read_json
from proxlearn.jobs.result_cache import ResultCache


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
    """The error message, if the cell failed."""


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
    """Results with the paper's settings by dataset, if there are any (see commands/compare.py)."""
    exceptions: dict[str, int] = field(default_factory=dict)
    """Number of splits of each dataset that has a number other than ``splits``."""
    files: list[str] = field(default_factory=list)
    """Names of the tables and plots that the command wrote; empty for plans of version 0.1.0 (see foreign_files.py)."""

    def splits_of(self, dataset: str) -> int:
        return self.exceptions.get(dataset, self.splits)

    @property
    def has_ours(self) -> bool:
        """Whether ProxLearn is among the methods; only then are differences from it shown."""
        return any(method.name == OURS for method in self.methods)

    @property
    def splits_text(self) -> str:
        """The number of splits as a string, followed by the datasets that have a different number."""
        others = ", ".join(f"{name} {number}" for name, number in self.exceptions.items())
        return f"{self.splits}" + (f" ({others})" if others else "")

    def values(self, dataset: str, method: str, measure: str) -> dict[int, float]:
        """Return the values of one metric by random split, for the cells that have finished."""
        values = self._values(dataset, method, measure)
        return {split: value for split, value in values.items() if split != AUTHORS}

    def authors(self, dataset: str, method: str, measure: str) -> float | None:
        """Return the value of a metric on the split of the samplers' authors, or None if the cell has not finished."""
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
    """Write plan.json into the folder of the tables and return this folder; ``errors`` maps cell keys to messages."""
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
