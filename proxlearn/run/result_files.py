"""What a run leaves behind besides its cloud: figures, the confusion matrix, and the model's description."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from proxlearn.core import scores
from proxlearn.core.cloud import PointCloud
from proxlearn.core.problem import Problem, Samples
from proxlearn.data.prepare import PreparedData
from proxlearn.data.scaling import Scaler
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import UnreadableFile
from proxlearn.run.model_description import read_description
from proxlearn.run.run_folder import MODEL_FORMAT, RunFolder

MOST_POINTS = 2000
"""Rows of points.csv: enough for a picture."""


def write_model(folder: RunFolder, prepared: PreparedData, neuron: str) -> None:
    """model.json: what prediction needs besides the cloud, and without the data."""
    table = prepared.table
    write_json(
        folder.model,
        {
            "format": MODEL_FORMAT,
            "neuron": neuron,
            "task": table.task,
            "columns": table.columns,
            "target": table.target_column,
            "classes": table.classes,
            "image": table.image,
            "scaling": _plain(prepared.scaler),
            "scaled_apart": prepared.scaled_apart,
            "target_scaling": _plain(prepared.target_scaler),
        },
    )


def repair_model(folder: RunFolder, prepared: PreparedData, neuron: str) -> None:
    """Write model.json anew where it is damaged: it follows from the config and the data."""
    try:
        found = read_description(folder.model)
        table = prepared.table
        expected = {"neuron": neuron, "task": table.task, "columns": [*table.columns], "classes": [*table.classes]}
        if all(found[key] == value for key, value in expected.items()):
            return
    except UnreadableFile:
        pass
    folder.require_held()
    write_model(folder, prepared, neuron)


def write_points(folder: RunFolder, prepared: PreparedData) -> None:
    """points.csv, for data of one or two dimensions: what a plot of the learnt function shows beside it, unscaled."""
    table, columns = prepared.table, prepared.table.columns
    if len(columns) > 2:
        return
    rows: list[list[Any]] = []
    for part, numbers in prepared.rows.items():
        shown = numbers[:MOST_POINTS]
        rows += [[part, *x, y] for x, y in zip(table.X[shown].tolist(), table.target[shown].tolist(), strict=True)]
    _write_csv(folder.points, ["part", *(f"x{i}" for i in range(len(columns))), "target"], rows)


def write_figures(folder: RunFolder, problem: Problem, test: Samples, cloud: PointCloud) -> None:
    """accuracy.csv, and for classification confusion.csv, of the newest cloud."""
    rows: list[list[Any]] = []
    confusion: list[list[Any]] = []
    task = scores.task_of(problem.neuron, test)
    for part, samples in (("test", test), ("train", problem.samples)):
        found = scores.scores(problem.neuron, cloud, samples)
        # The two estimates first, then whatever else has a figure of its own (a stricter count, the particles' votes).
        names = dict.fromkeys((*scores.ESTIMATES, *(name.split("_", 1)[1] for name in found if "accuracy_" in name)))
        for name in names:
            rows.append([part, name, *(found.get(f"{quantity}_{name}", "") for quantity in task.quantities)])
        if samples.labels is None:
            continue
        for estimate, answers in scores.estimates(problem.neuron, cloud, samples.X).items():
            C = task.classes(answers)
            counts = torch.bincount(samples.labels * C + task.predicted(answers), minlength=C * C)
            confusion += [[part, estimate, *divmod(cell, C), count] for cell, count in enumerate(counts.tolist())]
    _write_csv(folder.accuracy, ["part", "estimate", *task.quantities], rows)
    if confusion:
        _write_csv(folder.confusion, ["part", "estimate", "actual", "predicted", "count"], confusion)


def _plain(scaler: Scaler) -> dict[str, list[float]]:
    return {"shift": scaler.shift.tolist(), "factor": scaler.factor.tolist()}


def _write_csv(path: Path, header: list[str], rows: Iterable[list[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_atomically(path, text.getvalue().encode())
