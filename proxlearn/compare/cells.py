"""A cell of the grid: one method on one split of one dataset, and the small file that holds its result.

The file's name contains a hash of everything that determines the result, and the file states it in full: the method's
settings and its revision, the data, the split. Cells of other presets, protocols, temperatures or revisions lie beside
each other in one folder; a cell whose settings have changed is stale, and is computed again under another name.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxlearn import __version__
from proxlearn.baselines.method import Method, Preset
from proxlearn.baselines.registry import method_settings
from proxlearn.compare.spec import AUTHORS, Name
from proxlearn.compare.splits import UNREADABLE
from proxlearn.config.schema import DatasetConfig
from proxlearn.data.dataset_files import digest
from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import read_json

FORMAT = "proxlearn-cell-2"
"""Another one when the definition of a figure changes, or how rows are split and scaled."""
FIGURES = ("accuracy", "log_likelihood", "calibration_error", "seconds")
DONE, FAILED = "finished", "failed"
IDENTITY = (
    "format",
    "method",
    "revision",
    "settings",
    "dataset",
    "data_sha256",
    "split",
    "split_sha256",
    "scaling",
    "preset",
    "temperature",
)
"""What determines a result."""


@dataclass(frozen=True)
class CellRecord:
    """How a cell went."""

    state: str
    figures: dict[str, float]
    """FIGURES of a finished cell; seconds are of the fit, without loading and scoring."""
    error: str | None = None
    notes: dict[str, Any] | None = None
    """What the method has to say of its own course."""
    threads: int = 1


@dataclass(frozen=True)
class Cell:
    """All that a process needs to do it."""

    method: Method
    dataset: DatasetConfig
    data_sha256: str
    split: Name
    split_sha256: str
    test_share: float
    """Test rows over training rows."""
    scaling: str
    preset: Preset = "light"
    temperature: float = 1.0

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the result; presets and temperature are the samplers' own."""
        sampler = self.method.block == "sampler"
        values = (
            FORMAT,
            self.method.name,
            self.method.revision,
            settings_text(method_settings(self.method, self.preset, self.dataset.name)),
            self.dataset.name,
            self.data_sha256,
            self.split,
            self.split_sha256,
            self.scaling,
            self.preset if sampler else None,
            self.temperature if sampler else None,
        )
        return dict(zip(IDENTITY, values, strict=True))

    @property
    def seed(self) -> int:
        """Of the method."""
        return 0 if self.split == AUTHORS else self.split

    @property
    def title(self) -> str:
        return f"{self.dataset.name}, split {self.split}, {self.method.name}"

    @property
    def path(self) -> Path:
        """Its file, seen from the output folder."""
        return Path("cells", self.dataset.name, file_name(self.identity))

    def write(self, folder: Path, record: CellRecord) -> None:
        path = folder / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {**self.identity, "version": __version__, "state": record.state, "figures": record.figures}
        write_json(path, values | {"error": record.error, "notes": record.notes, "threads": record.threads})

    def read(self, folder: Path) -> CellRecord | None:
        """What came of it; None where it has not been done, or its file is damaged or another cell's."""
        try:
            values = read_json(folder / self.path)
            if any(values[key] != wanted for key, wanted in self.identity.items()):
                return None
            return record_of(values)
        except UNREADABLE:
            return None


def file_name(identity: dict[str, Any]) -> str:
    """The name that only this identity's file has."""
    word = digest(json.dumps(identity, sort_keys=True).encode())[:8]
    return f"{identity['split']}-{identity['method']}-{word}.json"


def settings_text(settings: dict[str, Any]) -> str:
    """Settings on one line; neither their order in the code nor its kind of sequence matters."""
    return ", ".join(f"{name}={json.dumps(settings[name], sort_keys=True)}" for name in sorted(settings))


def stored_record(path: Path) -> CellRecord | None:
    """The record in a cell's file; None where it is damaged, or belongs to an identity with another file name."""
    try:
        values = read_json(path)
        return record_of(values) if file_name({key: values[key] for key in IDENTITY}) == path.name else None
    except UNREADABLE:
        return None


def record_of(values: Any) -> CellRecord:
    """A cell's file as a record; ValueError, KeyError or TypeError where it is none."""
    state, error = values["state"], values["error"]
    if state == FAILED:
        return CellRecord(FAILED, {}, str(error))
    figures = {name: values["figures"][name] for name in FIGURES}
    if state != DONE or not all(type(each) is float and math.isfinite(each) for each in figures.values()):
        raise ValueError("a finished cell has four finite figures")
    return CellRecord(DONE, figures, None, dict(values["notes"]), int(values["threads"]))
