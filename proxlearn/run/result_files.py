"""The result files of a run besides its checkpoints: accuracies, confusion matrix and model description."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.estimates import ESTIMATES
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import evaluate_blocks, evaluate_cloud, task_of
from proxlearn.data.prepare import PreparedData
from proxlearn.data.scaling import Scaler
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import UnreadableFile
from proxlearn.run.model_description import read_description
from proxlearn.run.run_folder import MODEL_FORMAT, RunFolder

MOST_POINTS = 2000
"""Maximum number of rows of points.csv, enough for a plot."""


def write_model(folder: RunFolder, prepared: PreparedData, parts: Mapping[str, str]) -> None:
    """Write model.json, which holds everything that prediction needs besides the cloud."""
    table = prepared.table
    write_json(
        folder.model,
        {
            "format": MODEL_FORMAT,
            **parts,
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


def repair_model(folder: RunFolder, prepared: PreparedData, parts: Mapping[str, str]) -> None:
    """Write model.json again if it is damaged or does not match the data."""
    try:
        description = read_description(folder.model)
        table = prepared.table
        expected = {**parts, "task": table.task, "columns": [*table.columns], "classes": [*table.classes]}
        if all(description[key] == value for key, value in expected.items()):
            return
    except UnreadableFile:
        pass
    folder.require_held()
    write_model(folder, prepared, parts)


def write_points(folder: RunFolder, prepared: PreparedData) -> None:
    """Write points.csv if the data have one or two features: the unscaled points for plots of the learned function."""
    table, columns = prepared.table, prepared.table.columns
    if len(columns) > 2:
        return
    rows: list[list[Any]] = []
    for part, numbers in prepared.rows.items():
        plotted = numbers[:MOST_POINTS]
        rows += [[part, *x, y] for x, y in zip(table.X[plotted].tolist(), table.target[plotted].tolist(), strict=True)]
    _write_csv(folder.points, ["part", *(f"x{i}" for i in range(len(columns))), "target"], rows)


def write_figures(folder: RunFolder, problem: Risk, test: Samples, cloud: PointCloud, divided: bool = False) -> None:
    """Write the scores of a cloud to accuracy.csv and, for classification, confusion.csv; ``divided``: see measure."""
    rows: list[list[Any]] = []
    confusion: list[list[Any]] = []
    task = task_of(problem.neuron, test, problem.loss)
    for part, samples in (("test", test), ("train", problem.samples)):
        outputs = (evaluate_blocks if divided else evaluate_cloud)(problem.neuron, cloud, samples, task)
        values = outputs.scores(task, samples)
        # The two estimates first, then further accuracies (a stricter count, the particles' votes).
        names = dict.fromkeys((*ESTIMATES, *(name.split("_", 1)[1] for name in values if "accuracy_" in name)))
        for name in names:
            rows.append([part, name, *(values.get(f"{quantity}_{name}", "") for quantity in task.quantities)])
        if samples.labels is None:
            continue
        for estimate, output in outputs.means.items():
            C = task.classes(output)
            counts = torch.bincount(samples.labels * C + task.predicted(output), minlength=C * C)
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
