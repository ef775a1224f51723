"""What a comparison leaves behind for its views: a plan that names the cells, and the cells' own files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proxlearn.baselines.method import Method
from proxlearn.baselines.registry import OURS
from proxlearn.compare.cells import Cell, CellRecord, stored_record
from proxlearn.compare.output_files import PLAN, recorded_names
from proxlearn.compare.spec import AUTHORS, ComparisonSpec, Name
from proxlearn.compare.splits import UNREADABLE
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import read_json


@dataclass(frozen=True)
class Result:
    """One cell as a view needs it."""

    dataset: str
    method: str
    split: Name
    test_share: float
    record: CellRecord | None
    """None where it has not been done."""


@dataclass(frozen=True)
class Comparison:
    """A plan with its results."""

    path: Path
    command: str
    protocol: str
    preset: str
    temperature: float
    splits: int
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    results: tuple[Result, ...]
    ours: dict[str, Any]
    """dataset: the runs of the paper's own settings (see commands/compare.py), where there are any."""
    exceptions: dict[str, int] = field(default_factory=dict)
    """dataset: another number of splits than ``splits``."""
    files: list[str] = field(default_factory=list)
    """The tables and plots that the command wrote; empty in plans of version 0.1.0 (see files.py)."""

    def splits_of(self, dataset: str) -> int:
        return self.exceptions.get(dataset, self.splits)

    @property
    def has_ours(self) -> bool:
        """Whether there is something to take differences to."""
        return any(method.name == OURS for method in self.methods)

    @property
    def how_many(self) -> str:
        """In words."""
        others = ", ".join(f"{name} {number}" for name, number in self.exceptions.items())
        return f"{self.splits}" + (f" ({others})" if others else "")

    def values(self, dataset: str, method: str, measure: str) -> dict[int, float]:
        """A figure by random split, of the cells that have finished."""
        found = self._values(dataset, method, measure)
        return {split: value for split, value in found.items() if split != AUTHORS}

    def authors(self, dataset: str, method: str, measure: str) -> float | None:
        """A figure on the samplers' own split, where it was asked for and has finished."""
        return self._values(dataset, method, measure).get(AUTHORS)

    def _values(self, dataset: str, method: str, measure: str) -> dict[Name, float]:
        return {
            each.split: each.record.figures[measure]
            for each in self.results
            if (each.dataset, each.method) == (dataset, method) and each.record is not None and each.record.figures
        }

    def test_share(self, dataset: str) -> float:
        return next(each.test_share for each in self.results if each.dataset == dataset)


def write_plan(asked: ComparisonSpec, cells: list[Cell], output: Path, command: str, ours: dict[str, Any]) -> Path:
    """plan.json in the folder of this command's tables, which is returned."""
    folder = output / asked.name
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "command": command,
        "protocol": asked.protocol,
        "preset": asked.preset,
        "temperature": asked.temperature,
        "splits": asked.splits,
        "exceptions": asked.exceptions,
        "datasets": [config.name for config in asked.datasets],
        "methods": [asdict(method) for method in asked.methods],
        "cells": [
            {
                "dataset": cell.dataset.name,
                "method": cell.method.name,
                "split": cell.split,
                "test_share": cell.test_share,
                "path": str(cell.path),
            }
            for cell in cells
        ],
        "ours": ours,
        "files": sorted(recorded_names(folder)),
    }
    write_json(folder / PLAN, values)
    return folder


def read_comparison(folder: Path) -> Comparison:
    """The comparison whose tables are in ``folder``; its cells are beside it."""
    try:
        values = read_json(folder / PLAN)
        results = [
            Result(
                each["dataset"],
                each["method"],
                each["split"],
                each["test_share"],
                stored_record(folder.parent / each["path"]),
            )
            for each in values.pop("cells")
        ]
        methods = tuple(Method(**{**each, "only": tuple(each["only"])}) for each in values.pop("methods"))
        datasets = tuple(values.pop("datasets"))
        return Comparison(folder, datasets=datasets, methods=methods, results=tuple(results), **values)
    except UNREADABLE as error:
        problem = f"{folder / PLAN} cannot be read ({type(error).__name__})"
        raise InputError(problem, "give the `proxlearn compare ...` command again") from error
