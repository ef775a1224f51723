"""The runs of the plan as they are on disk, finished or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.errors import InputError
from proxlearn.views import source
from proxlearn.views.source import Run
from reproduce.plan import entry

NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Found:
    """One run with what tables ask of it."""

    name: str
    run: Run

    @property
    def metrics(self) -> pd.DataFrame:
        return self.run.metrics

    @property
    def made(self) -> int:
        """The newest logged step, which every figure is of."""
        return int(self.metrics["step"].iloc[-1])

    @property
    def asked(self) -> int:
        return int(self.run.status["steps"])

    @property
    def seconds(self) -> float:
        return float(self.run.status["seconds"])

    def final(self, column: str) -> float:
        return float(self.metrics[column].iloc[-1])

    def __getitem__(self, key: str) -> Any:
        return self.run.config[key]


def load(root: Path, *names: str, where: Callable[[Found], bool] = lambda found: True) -> list[Found]:
    """The runs of the plan's entries that have begun, in the plan's order."""
    found = []
    for name in names:
        for folder in sorted((root / "runs" / entry(name).name).glob("*"), key=_natural):
            try:
                run = source.read(folder)
            except (InputError, pd.errors.EmptyDataError):
                # A run that is in its first second.
                continue
            if len(run.metrics):
                found.append(Found(f"{name}/{folder.name}", run))
    return [each for each in found if where(each)]


def complete(runs: Iterable[Found]) -> bool:
    return all(each.made >= each.asked for each in runs)


def steps(runs: list[Found]) -> str:
    """Steps made, of those asked for where some are missing."""
    if not runs:
        return "none"
    asked = max(each.asked for each in runs)
    made = sorted({each.made for each in runs})
    shown = f"{made[0]}" if len(made) == 1 else f"{made[0]} to {made[-1]}"
    return f"{asked}" if complete(runs) else f"{shown} of {asked}"


def _natural(folder: Path) -> tuple[Any, ...]:
    """seed2 before seed10; the sweep's own order would cost a composition of its config."""
    return tuple(float(word) if index % 2 else word for index, word in enumerate(NUMBER.split(folder.name)))
