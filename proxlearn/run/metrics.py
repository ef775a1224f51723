"""The file metrics.csv, with one row per logged step, and the conversion of the earlier version of this file.

The columns h, beta and epsilon, which exist if these values change during the run, and the columns of the proximal step
describe the step that led to the row; they are empty in the row of step 0. Files of version 0.1.0 contain other
values in these columns (see below).

The columns of a file do not change: a metric that a later version adds is not added to existing files.

If h, beta and epsilon change during a run, metrics.csv has a column for each. In version 1 (proxlearn 0.1.0), these
columns are last and contain the values of the *next* step. In version 2, they follow `step` and contain the values of
the step that led to the row, as the proximal columns do. The order of the columns distinguishes the versions; a file is
replaced as a whole, so its header always matches its rows. Files without these columns are the same in both versions.

A conversion changes the positions of the rows to which the checkpoints refer. The old and the new positions are stored
in metrics-marks.json.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from proxlearn.core.cloud import PointCloud
from proxlearn.core.entropy import MOST_DIMENSIONS, entropy
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.metrics import discrete_free_energy, effective_sample_size, free_energy
from proxlearn.core.samples import Samples
from proxlearn.core.schedules import MEASURED_PER_DECADE, hyper_of_last_step, is_log_spaced, schedule_factor
from proxlearn.core.step import Info
from proxlearn.core.tasks import scores
from proxlearn.files.atomic import break_hard_links, sync_folder, write_all
from proxlearn.files.safe_read import MAX_TABLE_BYTES, AbsentFile, UnreadableFile, read_bytes, read_json
from proxlearn.portability import PLAIN
from proxlearn.run.checkpoint import MetricsPosition, Number

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
        """Return ``content`` with its complete rows converted, and without an incomplete last row."""
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
        """Return h and beta of the step that starts at ``step``, bit for bit as ``hyper_for_step`` computes them."""
        values = self.settings
        h = values["h"] * schedule_factor(values["h_schedule"], step, values["horizon"])
        return h, values["beta"] / schedule_factor(values["beta_schedule"], step, values["horizon"])

    def _epsilon(self, row: dict[str, str], previous: dict[str, str] | None) -> str:
        """Return the epsilon of the step that led to a row, or "" if neither the file nor a checkpoint contains it."""
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
"""A position in metrics.csv: the number of bytes before it, and their sha256."""


def metrics_position(content: bytes, size: int) -> Position:
    """Return the position after the first ``size`` bytes of ``content``."""
    return size, hashlib.sha256(content[:size]).hexdigest()


def converted_positions(old: bytes, new: bytes, positions: list[Position]) -> dict[str, Any]:
    """Return the content of metrics-marks.json: ``positions`` in the old file, with the positions in the new file."""
    marks: dict[str, Position] = {}
    ends = [i + 1 for i, byte in enumerate(new) if byte == ord("\n")]
    for size, sha256 in positions:
        if metrics_position(old, size) == (size, sha256) and old[:size].endswith(b"\n"):
            marks[f"{size}-{sha256}"] = metrics_position(new, ends[old[:size].count(b"\n") - 1])
    return {"format": MARKS_FORMAT, "marks": marks}


def read_converted_positions(path: Path) -> dict[Position, Position]:
    """Return a mapping from old to new positions in metrics.csv, which is empty if the file was not converted."""
    try:
        stored = read_json(path)
        if stored["format"] != MARKS_FORMAT:
            return {}
        pairs = ((key.partition("-"), value) for key, value in stored["marks"].items())
        return {(int(size), sha256): (int(value[0]), str(value[1])) for (size, _, sha256), value in pairs}
    except (UnreadableFile, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}


Row = dict[str, Number]


def measure(
    problem: Risk,
    parts: Mapping[str, Samples],
    cloud: PointCloud,
    proximal: Mapping[str, Number] | None,
    hyper: Hyper,
    divided: bool = False,
) -> Row:
    """Compute all metrics of a cloud on the parts of the data, one of which is ``train``.

    ``proximal`` contains the metrics of the proximal step that led to the cloud; it is None at step 0 and if the
    metrics are unknown. If ``divided`` is true, the cloud is divided among several ranks and measured block by block.
    """
    used = hyper_of_last_step(hyper, cloud)
    row: Row = {"step": cloud.step}
    # Constant values are not written, because they are in the config.
    if hyper.varies:
        numbers = (used.h, used.beta, used.epsilon) if cloud.step else (None, None, None)
        row |= dict(zip(HYPER_COLUMNS, numbers, strict=True))
    for part, samples in parts.items():
        values = scores(problem.neuron, cloud, samples, problem.loss, divided)
        row |= {f"{part}_{name}": value for name, value in values.items()}
    train_risk = cloud.log_rho.new_tensor(row["train_risk_weighted"])
    if problem.strengths is not None:
        train_risk = train_risk + cloud.shares @ problem.confining(cloud.theta)
    row["discrete_free_energy"] = float(discrete_free_energy(train_risk, cloud.log_rho, used.beta))
    row |= entropy_figures(problem, cloud, used, row["train_risk_unweighted"])
    row["ess"] = float(effective_sample_size(cloud.log_rho))
    row["mass"] = float(cloud.log_rho.exp().sum())
    return row | {name: None if proximal is None else proximal.get(name) for name in PROXIMAL}


def entropy_figures(problem: Risk, cloud: PointCloud, hyper: Hyper, train_risk: Number) -> Row:
    """Return the entropy of the particle distribution and the free energy; ``train_risk`` is the unweighted risk.

    Both are None in more than ``MOST_DIMENSIONS`` dimensions or if the entropy is not finite. With more than
    ``MOST_QUERIES`` particles, the entropy is estimated from a sample, in at most half a second for N = 100000.
    """
    value = float(entropy(cloud.theta)) if cloud.theta.shape[1] <= MOST_DIMENSIONS else math.nan
    if train_risk is None or not math.isfinite(value):
        return {"entropy": None, "free_energy": None}
    if problem.strengths is not None:
        train_risk += float(problem.confining(cloud.theta).mean())
    return {"entropy": value, "free_energy": free_energy(train_risk, value, hyper.beta, hyper.noise_scale)}


def proximal_figures(info: Info | None) -> Row:
    """Return the metrics of one proximal step, or an empty dictionary if ``info`` is None."""
    if info is None:
        return {}
    before, after = info.prox_objective()
    solution = info.solution
    step = (float(before), float(after), float(info.kernel_offdiag()), float(info.weights_change()))
    rounds = (solution.rounds, float(solution.error), solution.contraction, solution.converged)
    return dict(zip(PROXIMAL, step + rounds, strict=True))


PROXIMAL = (
    "prox_objective_before",
    "prox_objective_after",
    "kernel_offdiag",
    "weights_change",
    "sinkhorn_rounds",
    "sinkhorn_error",
    "sinkhorn_contraction",
    "converged",
)


class MetricsLog:
    """The file metrics.csv of a run; rows are appended, and a continued run removes the rows after its checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        self._size, self._sha256 = 0, hashlib.sha256()
        self._columns: list[str] | None = None
        """The columns of the file, or None if it has no rows."""

    @property
    def mark(self) -> MetricsPosition:
        """The position after the newest scheduled row."""
        return MetricsPosition(self._size, self._sha256.hexdigest()) if self._size else MetricsPosition()

    def holds_row(self, mark: MetricsPosition, closing: int) -> bool:
        """Return whether the file has the complete row of step ``closing`` directly after the position ``mark``."""
        return bool(_closing_row(self._content(), mark, closing))

    def foreign_lines(self, mark: MetricsPosition) -> list[str]:
        """Return the lines after ``mark`` that no session can have written, because they are not rows of later steps.

        ``start`` removes these lines from the file.
        """
        content = self._content()
        header, rows = (content[: mark.size] or content).partition(b"\n")[::2]
        first = 0 if not mark.size else _step_of(rows.rstrip(b"\n").rpartition(b"\n")[2]) + 1
        lines = content[mark.size or len(header) + 1 :].split(b"\n")
        # The last line has no line ending, so it is empty or incomplete.
        foreign = [line for line in lines[:-1] if not _is_row(line, header.count(b","), first)]
        if not re.fullmatch(rb"\0*(\d+(,[\w.+-]*)*)?\0*", lines[-1]):
            foreign.append(lines[-1])
        return [line.decode("utf-8", "replace") for line in foreign]

    def start(self, mark: MetricsPosition, closing: int | None) -> bool:
        """Open the file for appending, and remove everything after ``mark`` except the row of step ``closing``.

        Return True if ``closing`` is given and its row is missing.
        """
        content = self._content()
        kept = content[: mark.size]
        self._size, self._sha256 = len(kept), hashlib.sha256(kept)
        self._columns = kept.partition(b"\n")[0].decode().split(",") if kept else None
        closing_row = b"" if closing is None else _closing_row(content, mark, closing)
        break_hard_links(self.path)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | PLAIN, 0o666)
        os.ftruncate(self._handle, len(kept) + len(closing_row))
        sync_folder(self.path.parent)
        return closing is not None and not closing_row

    def write(self, row: Row, scheduled: bool = True) -> None:
        """Append a row; a row that is not ``scheduled`` is the final row, which is removed if the run is extended."""
        assert self._handle is not None
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self._columns is None:
            self._columns = list(row)
            writer.writerow(row)
        values = (row.get(name) for name in self._columns)
        writer.writerow("" if value is None else repr(value) for value in values)
        content = text.getvalue().encode()
        write_all(self._handle, content)
        if scheduled:
            self._size += len(content)
            self._sha256.update(content)

    def sync(self) -> None:
        """Sync the rows to disk; this is necessary before a checkpoint refers to them."""
        assert self._handle is not None
        os.fsync(self._handle)

    def _content(self) -> bytes:
        try:
            return read_bytes(self.path, MAX_TABLE_BYTES)
        except AbsentFile:
            return b""

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._handle is not None:
            os.close(self._handle)


def _step_of(row: bytes) -> int:
    """Return the step of a row, or -1 if the line is not a row."""
    cell = row.partition(b",")[0]
    return int(cell) if re.fullmatch(rb"\d{1,18}", cell) else -1


def _is_row(line: bytes, commas: int, first: int) -> bool:
    """Return whether a session may have written ``line`` for step ``first`` or later, ignoring leading null bytes."""
    row = line.lstrip(b"\0")
    return not row or (_step_of(row) >= first and row.count(b",") == commas)


def _closing_row(content: bytes, mark: MetricsPosition, step: int) -> bytes:
    """Return the row of ``step`` directly after ``mark``, or b"" if it is absent or incomplete."""
    row = content[mark.size :].partition(b"\n")[0] + b"\n"
    whole = content.startswith(row, mark.size) and row.count(b",") == content.partition(b"\n")[0].count(b",")
    return row if whole and row.startswith(b"%d," % step) else b""
