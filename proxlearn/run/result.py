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
from proxlearn.data.prepare import Prepared
from proxlearn.run.files import write_atomically, write_json
from proxlearn.run.folder import RunFolder

MOST_POINTS = 2000
"""Rows of points.csv: enough for a picture."""


def write_model(folder: RunFolder, prepared: Prepared, neuron: str) -> None:
    """model.json: what prediction needs besides the cloud, and without the data."""
    table, scaler = prepared.table, prepared.scaler
    write_json(
        folder.model,
        {
            "format": "proxlearn-model-1",
            "neuron": neuron,
            "task": table.task,
            "columns": table.columns,
            "classes": table.classes,
            "scaling": {"shift": scaler.shift.tolist(), "factor": scaler.factor.tolist()},
        },
    )


def write_points(folder: RunFolder, prepared: Prepared) -> None:
    """points.csv, for data of one or two dimensions: what a plot of the learnt function shows beside it."""
    columns = prepared.table.columns
    if len(columns) > 2:
        return
    rows: list[list[Any]] = []
    for part, samples in (("train", prepared.train), ("test", prepared.test)):
        target = samples.y if samples.labels is None else samples.labels
        rows += [
            [part, *x, y] for x, y in zip(samples.X[:MOST_POINTS].tolist(), target[:MOST_POINTS].tolist(), strict=True)
        ]
    _write_csv(folder.points, ["part", *(f"x{i}" for i in range(len(columns))), "target"], rows)


def write_figures(folder: RunFolder, problem: Problem, test: Samples, cloud: PointCloud) -> None:
    """accuracy.csv, and for classification confusion.csv, of the newest cloud."""
    rows: list[list[Any]] = []
    confusion: list[list[Any]] = []
    quantities = ("accuracy", "risk", "risk_paper", "log_loss") if test.labels is not None else ("risk", "rmse", "r2")
    for part, samples in (("test", test), ("train", problem.samples)):
        found = scores.scores(problem.neuron, cloud, samples)
        for estimate in scores.ESTIMATES:
            rows.append([part, estimate, *(found[f"{quantity}_{estimate}"] for quantity in quantities)])
        if samples.labels is None:
            continue
        rows.append([part, "unweighted_saturated", found["accuracy_unweighted_saturated"], "", "", ""])
        for estimate, f in scores.estimates(problem.neuron, cloud, samples).items():
            counts = torch.bincount(samples.labels * 2 + scores.predicted_class(f), minlength=4)
            confusion += [[part, estimate, *divmod(cell, 2), count] for cell, count in enumerate(counts.tolist())]
    _write_csv(folder.accuracy, ["part", "estimate", *quantities], rows)
    if confusion:
        _write_csv(folder.confusion, ["part", "estimate", "actual", "predicted", "count"], confusion)


def _write_csv(path: Path, header: list[str], rows: Iterable[list[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_atomically(path, text.getvalue().encode())
