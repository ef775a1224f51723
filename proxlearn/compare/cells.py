"""A cell of the grid: one method on one split of one dataset, with everything that determines its result.

The results of all cells are in one cache (jobs/result_cache.py). Cells of other presets, protocols, temperatures or
revisions are stored side by side; a cell whose settings have changed has a new identity and is computed again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from proxlearn.baselines.method import Method, Preset
from proxlearn.baselines.registry import method_settings
from proxlearn.compare.spec import AUTHORS, SplitName
from proxlearn.config.schema import DatasetConfig
from proxlearn.jobs.result_cache import ResultCache, cache_key

CELL_FORMAT = "proxlearn-cell-2"
"""Raised when the definition of a figure changes, or the splitting or scaling of rows."""
FIGURES = ("accuracy", "log_likelihood", "calibration_error", "seconds")


@dataclass(frozen=True)
class CellResult:
    """The result of a finished cell."""

    figures: dict[str, float]
    """Values by the names in FIGURES; seconds are those of the fit, without loading and scoring."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Notes of the method on its fit."""
    threads: int = 1

    def values(self) -> dict[str, Any]:
        """Return the result as the plain values that the cache stores."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """Everything that a process needs to compute a cell."""

    method: Method
    dataset: DatasetConfig
    data_sha256: str
    split: SplitName
    split_sha256: str
    test_share: float
    """Test rows over training rows."""
    scaling: str
    preset: Preset = "light"
    temperature: float = 1.0

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the result; only samplers have a preset and a temperature."""
        sampler = self.method.block == "sampler"
        return {
            "format": CELL_FORMAT,
            "method": self.method.name,
            "revision": self.method.revision,
            "settings": settings_text(method_settings(self.method, self.preset, self.dataset.name)),
            "dataset": self.dataset.name,
            "data_sha256": self.data_sha256,
            "split": self.split,
            "split_sha256": self.split_sha256,
            "scaling": self.scaling,
            "preset": self.preset if sampler else None,
            "temperature": self.temperature if sampler else None,
        }

    @property
    def key(self) -> str:
        return cache_key(self.identity)

    @property
    def seed(self) -> int:
        """The seed of the method."""
        return 0 if self.split == AUTHORS else self.split

    @property
    def title(self) -> str:
        return f"{self.dataset.name}, split {self.split}, {self.method.name}"

    def stored_result(self, cache: ResultCache) -> CellResult | None:
        """Return the result in the cache; None if there is none or it is damaged."""
        values = cache.get(self.identity)
        return None if values is None else parse_result(values)


def settings_text(settings: dict[str, Any]) -> str:
    """Return the settings on one line; neither their order in the code nor the type of a sequence matters."""
    return ", ".join(f"{name}={json.dumps(settings[name], sort_keys=True)}" for name in sorted(settings))


def parse_result(values: Mapping[str, Any]) -> CellResult | None:
    """Parse a cached result, which any program may have edited; None if it is not that of a finished cell."""
    try:
        figures = {name: values["figures"][name] for name in FIGURES}
        if not all(type(figure) is float and math.isfinite(figure) for figure in figures.values()):
            return None
        return CellResult(figures, dict(values["notes"]), int(values["threads"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
