"""The two versions of metrics.csv, and the conversion of version 1 to version 2.

If h, beta and epsilon change during a run, metrics.csv has a column for each. In version 1 (proxlearn 0.1.0), these
columns are last and hold the values of the *next* step. In version 2, they follow `step` and hold the values of the
step that led to the row, as the proximal columns do. The order of the columns distinguishes the versions; a file is
replaced as a whole, so its header always matches its rows. Files without these columns are the same in both versions.

A conversion changes the positions of the rows to which the checkpoints refer. The old and the new positions are stored
in metrics-marks.json.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxlearn.core.schedules import MEASURED_PER_DECADE, is_log_spaced, schedule_factor
from proxlearn.files.safe_read import UnreadableFile, read_json

VERSION = 2
MARKS_FORMAT = "proxlearn-marks-1"
HYPER_COLUMNS = ("h", "beta", "epsilon")
RISK_COLUMN, FREE_ENERGY_COLUMN = "train_risk_weighted", "discrete_free_energy"


def metrics_file_version(header: str) -> int:
    """Return the version of a metrics.csv with this header line."""
    return 1 if tuple(header.strip().split(",")[-len(HYPER_COLUMNS) :]) == HYPER_COLUMNS else VERSION


@dataclass(frozen=True)
class MetricsConversion:
    """A callable that converts the text of metrics.csv from version 1 to version 2."""

    settings: Mapping[str, Any]
    """The values of h, beta, their schedules, horizon and epsilon_quantile, from the config or from the selection."""
    stored_epsilon: Callable[[int], float | None] = lambda step: None
    """Function that returns the epsilon of the step that led to a checkpoint, or None if the checkpoint is missing."""

    def __call__(self, content: str) -> str:
        """Return ``content`` with all its complete rows converted."""
        lines = content.split("\n")[:-1]
        names = lines[0].split(",")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        order = ["step", *HYPER_COLUMNS, *(name for name in names if name not in ("step", *HYPER_COLUMNS))]
        writer.writerow(order)
        previous: dict[str, str] | None = None
        for line in lines[1:]:
            row = dict(zip(names, line.split(","), strict=True))
            converted = self._convert_row(row, previous)
            writer.writerow(converted[name] for name in order)
            previous = row
        return text.getvalue()

    def _convert_row(self, row: dict[str, str], previous: dict[str, str] | None) -> dict[str, str]:
        """Convert one row; ``previous`` is the unconverted row before it, or None for the first row."""
        step = int(row["step"])
        if step == 0:
            return row | dict.fromkeys(HYPER_COLUMNS, "")
        h, beta = self._scheduled(step - 1)
        energy = row[FREE_ENERGY_COLUMN]
        if beta != float(row["beta"]):
            # The free energy is risk + entropy / beta, so it is recomputed with the new beta.
            risk = float(row[RISK_COLUMN])
            energy = repr(risk + (float(energy) - risk) * float(row["beta"]) / beta)
        return row | {
            "h": repr(h),
            "beta": repr(beta),
            "epsilon": self._epsilon(row, previous),
            FREE_ENERGY_COLUMN: energy,
        }

    def _scheduled(self, step: int) -> tuple[float, float]:
        """Return h and beta of the step that starts at ``step``, bit for bit as ``hyper_at`` computes them."""
        values = self.settings
        h = values["h"] * schedule_factor(values["h_schedule"], step, values["horizon"])
        return h, values["beta"] / schedule_factor(values["beta_schedule"], step, values["horizon"])

    def _epsilon(self, row: dict[str, str], previous: dict[str, str] | None) -> str:
        """Return the epsilon of the step that led to a row, or "" if neither the file nor a checkpoint has it."""
        step = int(row["step"])
        is_measured = self.settings["epsilon_quantile"] is not None
        if previous is not None and int(previous["step"]) == step - 1:
            return previous["epsilon"]
        if not is_measured or not is_log_spaced(step, MEASURED_PER_DECADE):
            return row["epsilon"]
        # Epsilon was measured again at this step, so the previous step used the value of an earlier measurement.
        measured_at = next(k for k in range(step - 1, -1, -1) if is_log_spaced(k, MEASURED_PER_DECADE))
        if previous is not None and int(previous["step"]) >= measured_at:
            return previous["epsilon"]
        stored = self.stored_epsilon(step)
        return "" if stored is None else repr(stored)


Position = tuple[int, str]
"""A length of metrics.csv in bytes, and the sha256 of that many bytes."""


def metrics_position(content: bytes, size: int) -> Position:
    """Return the position after the first ``size`` bytes of ``content``."""
    return size, hashlib.sha256(content[:size]).hexdigest()


def converted_positions(old: bytes, new: bytes, positions: list[Position]) -> dict[str, Any]:
    """Return the content of metrics-marks.json: the positions in the old file and the corresponding new ones."""
    marks: dict[str, Position] = {}
    ends = [i + 1 for i, byte in enumerate(new) if byte == ord("\n")]
    for size, sha256 in positions:
        if metrics_position(old, size) == (size, sha256) and old[:size].endswith(b"\n"):
            marks[f"{size}-{sha256}"] = metrics_position(new, ends[old[:size].count(b"\n") - 1])
    return {"format": MARKS_FORMAT, "marks": marks}


def read_converted_positions(path: Path) -> dict[Position, Position]:
    """Return the current positions by the positions before the conversion; empty if there was no conversion."""
    try:
        stored = read_json(path)
        if stored["format"] != MARKS_FORMAT:
            return {}
        pairs = ((key.partition("-"), value) for key, value in stored["marks"].items())
        return {(int(size), sha256): (int(value[0]), str(value[1])) for (size, _, sha256), value in pairs}
    except (UnreadableFile, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}
