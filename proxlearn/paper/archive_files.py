"""Read and write the files of the archive, each of which contains data on all runs of one experiment.

    runs.jsonl            one JSON object per run: its name, status (state, step, version, data_sha256, command, ...),
                          config (seed, ...), confusion matrices, and the description of its model
    metrics.csv           the metrics of every run, with the name of the run in the first column
    points.csv            the data points that a table needs, stored once for all runs with the same points
    clouds.safetensors    the clouds that a table or a figure needs, in the precision of the run
    free_energy.csv       the free energy during the runs whose clouds are too large to be archived

Numbers are copied as text without parsing, so that an archived run gives exactly the same results as its run folder.
Runs are sorted by name, so that the same runs give identical files.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.errors import refuse_newer_format
from proxlearn.files.atomic import write_atomically
from proxlearn.files.safe_read import PARSE_ERRORS, AbsentFile, UnreadableFile, parse_json, read_bytes, read_text

FORMAT = "proxlearn-paper-run-1"
RUNS, METRICS, POINTS, CLOUDS = "runs.jsonl", "metrics.csv", "points.csv", "clouds.safetensors"
FREE_ENERGY = "free_energy.csv"
MAX_BYTES = 2**29
NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
CLOUD_KEY = re.compile(r"(.+)@(\d+)/theta")
REMEDY = "restore it with git or from a backup"


@dataclass(frozen=True)
class TextTable:
    """A CSV table whose cells are strings."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> TextTable:
        """Parse CSV text; a last line without a line ending is ignored, because it may be incomplete."""
        complete = text[: text.rfind("\n") + 1]
        header, *rows = (tuple(row) for row in csv.reader(io.StringIO(complete)))
        return cls(header, tuple(rows))

    def text(self) -> str:
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows((self.columns, *self.rows))
        return content.getvalue()


@dataclass(frozen=True)
class PackedRun:
    """A run in the form in which the archive stores it."""

    name: str
    status: Mapping[str, Any]
    config: Mapping[str, Any]
    metrics: TextTable
    confusion: Mapping[str, list[list[int]]] | None = None
    """For each key ``part/estimate``, the counts by actual class (rows) and predicted class (columns)."""
    model: Mapping[str, Any] | None = None
    """The content of model.json if clouds of the run are archived; otherwise None."""
    points: TextTable | None = None
    clouds: Mapping[int, PointCloud] = field(default_factory=dict)
    """Archived clouds by step."""
    free_energy: TextTable | None = None

    def record(self) -> dict[str, Any]:
        """Return the JSON object of the run for runs.jsonl."""
        return {
            "run": self.name,
            "format": FORMAT,
            "status": dict(self.status),
            "config": dict(self.config),
            "confusion": self.confusion,
            "model": self.model,
            "points": None if self.points is None else points_id(self.points),
        }


def read_packed_runs(folder: Path) -> dict[str, PackedRun]:
    """Return the runs of one experiment by name; the result is empty if the archive has no run of the experiment."""
    records = _read_records(folder / RUNS)
    if not records:
        return {}
    try:
        metrics, points = _read_tables(folder / METRICS), _read_tables(folder / POINTS)
        clouds, free_energies = _read_clouds(folder / CLOUDS), _read_tables(folder / FREE_ENERGY)
        return {
            name: PackedRun(
                name,
                record["status"],
                record["config"],
                metrics[name],
                record["confusion"],
                record["model"],
                None if record["points"] is None else points[record["points"]],
                clouds.get(name, {}),
                free_energies.get(name),
            )
            for name, record in records.items()
        }
    except KeyError as error:
        raise UnreadableFile(folder / RUNS, f"there is no entry for {error}", REMEDY) from error


def write_packed_runs(folder: Path, runs: Iterable[PackedRun]) -> None:
    """Write the files of one experiment and replace existing files; the new files contain only the given runs."""
    ordered = sorted(runs, key=lambda run: natural_order(run.name))
    folder.mkdir(parents=True, exist_ok=True)
    points = {points_id(run.points): run.points for run in ordered if run.points is not None}
    _write_tables(folder / POINTS, "points", points)
    _write_clouds(folder / CLOUDS, ordered)
    _write_tables(folder / METRICS, "run", {run.name: run.metrics for run in ordered})
    free_energies = {run.name: run.free_energy for run in ordered if run.free_energy is not None}
    _write_tables(folder / FREE_ENERGY, "run", free_energies)
    # This file is written last, because a run is in the archive only if it has a line in this file.
    write_atomically(folder / RUNS, "".join(json.dumps(run.record()) + "\n" for run in ordered).encode())


def natural_order(name: str) -> tuple[Any, ...]:
    """Return a sort key for a run name in which numbers are compared by value, so that seed2 comes before seed10."""
    entry, _, label = name.partition("/")
    return entry, *(float(part) if index % 2 else part for index, part in enumerate(NUMBER.split(label)))


def points_id(points: TextTable) -> str:
    return hashlib.sha256(points.text().encode()).hexdigest()[:12]


def _read_records(path: Path) -> dict[str, dict[str, Any]]:
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except AbsentFile:
        return {}
    try:
        records = [parse_json(line) for line in lines]
        for record in records:
            refuse_newer_format(path, record["format"], FORMAT)
            if record["format"] != FORMAT:
                raise ValueError(f"unknown format {record['format']!r:.40}")
        return {str(record["run"]): record for record in records}
    except PARSE_ERRORS as error:
        raise UnreadableFile(path, f"it is not a table of runs ({error!s:.80})", REMEDY) from error


def _read_tables(path: Path) -> dict[str, TextTable]:
    """Read a CSV file, and return one table per value of its first column, or {} if the file does not exist."""
    try:
        (_, *columns), *rows = csv.reader(io.StringIO(read_text(path, MAX_BYTES)))
    except AbsentFile:
        return {}
    except (ValueError, csv.Error) as error:
        raise UnreadableFile(path, f"it is not a table ({error!s:.80})", REMEDY) from error
    tables: dict[str, list[tuple[str, ...]]] = {}
    for name, *cells in rows:
        tables.setdefault(name, []).append(tuple(cells))
    return {name: TextTable(tuple(columns), tuple(cells)) for name, cells in tables.items()}


def _write_tables(path: Path, key: str, tables: Mapping[str, TextTable]) -> None:
    """Write all tables to one CSV file with an additional first column, ``key``, for the names of the tables.

    The cells of columns that a table lacks are empty. If there are no tables, the file is deleted.
    """
    if not tables:
        path.unlink(missing_ok=True)
        return
    columns = list(dict.fromkeys(column for table in tables.values() for column in table.columns))
    rows = []
    for name, table in tables.items():
        places = {column: place for place, column in enumerate(table.columns)}
        for row in table.rows:
            rows.append((name, *(row[places[column]] if column in places else "" for column in columns)))
    write_atomically(path, TextTable((key, *columns), tuple(rows)).text().encode())


def _read_clouds(path: Path) -> dict[str, dict[int, PointCloud]]:
    try:
        content = read_bytes(path, MAX_BYTES)
    except AbsentFile:
        return {}
    try:
        tensors = safetensors.torch.load(content)
        clouds: dict[str, dict[int, PointCloud]] = {}
        for key in tensors:
            if match := CLOUD_KEY.fullmatch(key):
                name, step = match[1], int(match[2])
                # The tensors are cloned, because views of the file's bytes are not aligned, and a sum may depend on the
                # alignment.
                theta, log_rho = (tensors[f"{name}@{step}/{part}"].clone() for part in ("theta", "log_rho"))
                clouds.setdefault(name, {})[step] = PointCloud(theta, log_rho, step)
        return clouds
    except (safetensors.SafetensorError, KeyError) as error:
        raise UnreadableFile(path, f"it does not contain clouds ({error!s:.80})", REMEDY) from error


def _write_clouds(path: Path, runs: Iterable[PackedRun]) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for run in runs:
        for step, cloud in sorted(run.clouds.items()):
            tensors[f"{run.name}@{step}/theta"] = cloud.theta.contiguous()
            tensors[f"{run.name}@{step}/log_rho"] = cloud.log_rho.contiguous()
    if tensors:
        write_atomically(path, safetensors.torch.save(tensors))
    else:
        path.unlink(missing_ok=True)
