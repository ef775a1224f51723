"""The runs of the plan as they are on disk, finished or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from proxlearn.errors import InputError
from proxlearn.views.run import run_data
from proxlearn.views.run.run_data import RunData
from reproduce.plan import entry

NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Found:
    """One run with what tables ask of it."""

    name: str
    run: RunData

    @property
    def metrics(self) -> pd.DataFrame:
        return self.run.metrics

    @property
    def made(self) -> int:
        """The newest logged step, which every figure is of."""
        return int(self.metrics["step"].iloc[-1])

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
                run = run_data.read_run_data(folder)
            except (InputError, pd.errors.EmptyDataError):
                # A run that is in its first second.
                continue
            if len(run.metrics):
                found.append(Found(f"{name}/{folder.name}", run))
    return [each for each in found if where(each)]


def complete(runs: list[Found], wanted: int) -> bool:
    """Whether there are runs, and all of them as long as the paper's."""
    return bool(runs) and all(each.made >= wanted for each in runs)


def steps(runs: list[Found], wanted: int | None = None) -> str:
    """Steps made, and of how many where some are missing."""
    made = sorted({each.made for each in runs})
    shown = " to ".join(str(each) for each in dict.fromkeys((made[0], made[-1]))) if made else "none"
    return shown if wanted is None or complete(runs, wanted) else f"{shown} of {wanted}"


def _natural(folder: Path) -> tuple[Any, ...]:
    """seed2 before seed10; the sweep's own order would cost a composition of its config."""
    return tuple(float(word) if index % 2 else word for index, word in enumerate(NUMBER.split(folder.name)))
