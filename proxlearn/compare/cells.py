"""Cells of a comparison: a cell is one method on one split of one dataset.

The results of all cells are stored in one cache (jobs/result_cache.py), including results for different presets,
protocols, temperatures and revisions. A cell whose settings have changed has a new identity and is computed again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from proxlearn.baselines.registry import Method, Preset, method_settings
from proxlearn.compare.spec import AUTHORS, SplitName
from proxlearn.config.schema import DatasetConfig
from proxlearn.jobs.result_cache import ResultCache, cache_key

CELL_FORMAT = "proxlearn-cell-2"
"""Name of the format of the results; it is changed whenever a metric's definition, the splitting or the scaling
changes."""
FIGURES = ("accuracy", "log_likelihood", "calibration_error", "seconds")


@dataclass(frozen=True)
class CellResult:
    """The result of a finished cell."""

    figures: dict[str, float]
    """Values of the metrics in FIGURES by name; ``seconds`` is the duration of the fit, without loading and scoring."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Additional values that the method reports about the fit, by name."""
    threads: int = 1

    def values(self) -> dict[str, Any]:
        """Return the result as plain values, in the form that the cache stores."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """One method on one split of one dataset, with everything that a process needs to compute the result."""

    method: Method
    dataset: DatasetConfig
    data_sha256: str
    split: SplitName
    split_sha256: str
    test_share: float
    """Number of test rows divided by the number of training rows."""
    scaling: str
    preset: Preset = "light"
    temperature: float = 1.0

    @property
    def identity(self) -> dict[str, Any]:
        """All values that determine the result; preset and temperature are None unless the method is a sampler."""
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
        """The seed of the method: the number of the split, or 0 for the split of the samplers' authors."""
        return 0 if self.split == AUTHORS else self.split

    @property
    def title(self) -> str:
        return f"{self.dataset.name}, split {self.split}, {self.method.name}"

    def stored_result(self, cache: ResultCache) -> CellResult | None:
        """Return the result stored in the cache, or None if the cache has no valid result of this cell."""
        values = cache.get(self.identity)
        return None if values is None else parse_result(values)


def settings_text(settings: dict[str, Any]) -> str:
    """Return the settings as one line that does not depend on their order or on the types of sequences."""
    return ", ".join(f"{name}={json.dumps(settings[name], sort_keys=True)}" for name in sorted(settings))


def parse_result(values: Mapping[str, Any]) -> CellResult | None:
    """Return the result that the cache stores as ``values``, or None if ``values`` is not a valid result of a cell."""
    try:
        figures = {name: values["figures"][name] for name in FIGURES}
        if not all(type(figure) is float and math.isfinite(figure) for figure in figures.values()):
            return None
        return CellResult(figures, dict(values["notes"]), int(values["threads"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
