"""The two versions of metrics.csv, and the conversion of a file of the first one.

Where h, beta and epsilon change along a run, metrics.csv has a column for each. In version 1 (proxlearn 0.1.0) they
come last, and hold the numbers of the *next* step. In version 2 they follow `step`, and hold the numbers of the step
that led to the row, as the proximal columns do. The order of the columns tells the versions apart: a file is replaced
as a whole, so that its header always fits its rows. Files without these columns are the same in both versions.
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
    """The version of a metrics.csv with this first line."""
    return 1 if tuple(header.strip().split(",")[-len(HYPER_COLUMNS) :]) == HYPER_COLUMNS else VERSION


@dataclass(frozen=True)
class MetricsConversion:
    """Rows of version 1 as rows of version 2."""

    settings: Mapping[str, Any]
    """h, beta, their schedules, horizon and epsilon_quantile: those of the config, or what was selected."""
    stored_epsilon: Callable[[int], float | None] = lambda step: None
    """The epsilon of the step that led to a checkpoint, if the run has stored one there."""

    def __call__(self, content: str) -> str:
        """The whole rows, as many as before."""
        lines = content.split("\n")[:-1]
        names = lines[0].split(",")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        order = ["step", *HYPER_COLUMNS, *(name for name in names if name not in ("step", *HYPER_COLUMNS))]
        writer.writerow(order)
        before: dict[str, str] | None = None
        for line in lines[1:]:
            convert_row = dict(zip(names, line.split(","), strict=True))
            converted = self.row(convert_row, before)
            writer.writerow(converted[name] for name in order)
            before = convert_row
        return text.getvalue()

    def row(self, row: dict[str, str], before: dict[str, str] | None) -> dict[str, str]:
        """One row; ``before`` is the one above it, unconverted."""
        step = int(row["step"])
        if step == 0:
            return row | dict.fromkeys(HYPER_COLUMNS, "")
        h, beta = self._scheduled(step - 1)
        energy = row[FREE_ENERGY_COLUMN]
        if beta != float(row["beta"]):
            # risk + entropy / beta, with the other beta.
            risk = float(row[RISK_COLUMN])
            energy = repr(risk + (float(energy) - risk) * float(row["beta"]) / beta)
        return row | {
            "h": repr(h),
            "beta": repr(beta),
            "epsilon": self._epsilon(row, before),
            FREE_ENERGY_COLUMN: energy,
        }

    def _scheduled(self, step: int) -> tuple[float, float]:
        """h and beta of the step from ``step`` on: the expressions of Plan.hyper_at, for the same bits."""
        values = self.settings
        h = values["h"] * schedule_factor(values["h_schedule"], step, values["horizon"])
        return h, values["beta"] / schedule_factor(values["beta_schedule"], step, values["horizon"])

    def _epsilon(self, row: dict[str, str], before: dict[str, str] | None) -> str:
        """Empty where neither the file nor a checkpoint tells it."""
        step = int(row["step"])
        relative = self.settings["epsilon_quantile"] is not None
        if before is not None and int(before["step"]) == step - 1:
            return before["epsilon"]
        if not relative or not is_log_spaced(step, MEASURED_PER_DECADE):
            return row["epsilon"]
        # It was measured again at this very step: the one in use before was measured at an earlier one.
        measured = next(k for k in range(step - 1, -1, -1) if is_log_spaced(k, MEASURED_PER_DECADE))
        if before is not None and int(before["step"]) >= measured:
            return before["epsilon"]
        stored = self.stored_epsilon(step)
        return "" if stored is None else repr(stored)


Position = tuple[int, str]
"""A length of metrics.csv in bytes, and the sha256 of so many."""


def metrics_position(content: bytes, size: int) -> Position:
    return size, hashlib.sha256(content[:size]).hexdigest()


def converted_positions(old: bytes, new: bytes, positions: list[Position]) -> dict[str, Any]:
    """Where the positions in the old file are in the new one: what is written before the file is replaced."""
    marks: dict[str, Position] = {}
    ends = [i + 1 for i, byte in enumerate(new) if byte == ord("\n")]
    for size, sha256 in positions:
        if metrics_position(old, size) == (size, sha256) and old[:size].endswith(b"\n"):
            marks[f"{size}-{sha256}"] = metrics_position(new, ends[old[:size].count(b"\n") - 1])
    return {"format": MARKS_FORMAT, "marks": marks}


def read_converted_positions(path: Path) -> dict[Position, Position]:
    """Positions in a file that was converted -> those in the present one; empty where none was."""
    try:
        stored = read_json(path)
        if stored["format"] != MARKS_FORMAT:
            return {}
        pairs = ((key.partition("-"), value) for key, value in stored["marks"].items())
        return {(int(size), sha256): (int(value[0]), str(value[1])) for (size, _, sha256), value in pairs}
    except (UnreadableFile, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}
