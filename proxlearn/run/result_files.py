"""The result files of a run besides its checkpoints: scores, confusion matrices, points and model description."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.metrics import accuracy_share, apply_probability_floor, probability_scores
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import ESTIMATES, Task, evaluate_blocks, evaluate_cloud, task_of
from proxlearn.data.prepare import PreparedData
from proxlearn.data.scaling import Scaler
from proxlearn.files.atomic import write_atomically, write_json
from proxlearn.files.safe_read import UnreadableFile
from proxlearn.run.model_description import read_description
from proxlearn.run.run_folder import MODEL_FORMAT, PLAIN_MODEL_FORMAT, RunFolder

PART_ORDER = ("test", "validation", "train")
"""Order of the parts in accuracy.csv."""
MOST_POINTS = 2000
"""Maximum number of rows per part of the data in points.csv; this number is enough for a plot."""


def write_model(
    folder: RunFolder, prepared: PreparedData, parts: Mapping[str, str], link_slope: float | None = None
) -> None:
    """Write model.json, which contains everything that prediction needs besides the cloud."""
    table = prepared.table
    reading = {key: value for key, value in table.reading.items() if value is not None}
    is_plain = prepared.encoder.is_identity and not reading and len(table.target_columns) < 2
    # Earlier versions ignore values that they do not know, so they must not read a model that depends on such values.
    encoding = {} if is_plain else {"encoding": prepared.encoder.description(), "reading": reading}
    write_json(
        folder.model,
        {
            "format": PLAIN_MODEL_FORMAT if is_plain else MODEL_FORMAT,
            **parts,
            **encoding,
            "task": table.task,
            "columns": table.columns,
            "target": table.target_columns if len(table.target_columns) > 1 else table.target_column,
            "classes": table.classes,
            "image": table.image,
            "scaling": _plain(prepared.scaler),
            "scaled_apart": prepared.scaled_apart,
            "target_scaling": _plain(prepared.target_scaler),
            **({} if link_slope is None else {"link_slope": link_slope}),
        },
    )


def repair_model(
    folder: RunFolder, prepared: PreparedData, parts: Mapping[str, str], link_slope: float | None = None
) -> None:
    """Write model.json again if it is damaged or does not match the data."""
    try:
        description = read_description(folder.model)
        table = prepared.table
        names = {"columns": [*table.columns], "classes": [*table.classes]}
        expected: dict[str, Any] = {**parts, **names, "task": table.task, "link_slope": link_slope}
        if all(description[key] == value for key, value in expected.items()):
            return
    except UnreadableFile:
        pass
    folder.require_held()
    write_model(folder, prepared, parts, link_slope)


def write_points(folder: RunFolder, prepared: PreparedData) -> None:
    """Write unscaled points for plots to points.csv, unless the data have more than two features or several targets."""
    table, columns = prepared.table, prepared.table.columns
    if len(columns) > 2 or table.target.ndim == 2:
        return
    rows: list[list[Any]] = []
    for part, numbers in prepared.rows.items():
        plotted = numbers[:MOST_POINTS]
        rows += [[part, *x, y] for x, y in zip(table.X[plotted].tolist(), table.target[plotted].tolist(), strict=True)]
    _write_csv(folder.points, ["part", *(f"x{i}" for i in range(len(columns))), "target"], rows)


def write_figures(
    folder: RunFolder, problem: Risk, parts: Mapping[str, Samples], cloud: PointCloud, divided: bool = False
) -> None:
    """Write the scores of a cloud to accuracy.csv and, for classes, the confusion matrices to confusion.csv.

    ``divided`` has the same meaning as in ``measure``. In accuracy.csv, the last row of each part of the data is a
    reference: the scores of the constant prediction that is best on the training part.
    """
    rows: list[list[Any]] = []
    confusion: list[list[Any]] = []
    task = task_of(problem.neuron, parts["test"], problem.loss)
    for part in sorted(parts, key=PART_ORDER.index):
        samples = parts[part]
        outputs = (evaluate_blocks if divided else evaluate_cloud)(problem.neuron, cloud, samples, task)
        values = outputs.scores(task, samples)
        # The two estimates come first, then the additional accuracies (saturated, per particle).
        names = dict.fromkeys((*ESTIMATES, *(name.split("_", 1)[1] for name in values if "accuracy_" in name)))
        C = task.classes(outputs.means[ESTIMATES[0]])
        reference = "majority_class" if C else "mean"
        values |= constant_scores(task, C, parts["train"], samples, reference)
        for name in (*names, reference):
            rows.append([part, name, *(values.get(f"{quantity}_{name}", "") for quantity in task.quantities)])
        if samples.labels is None:
            continue
        for estimate, output in outputs.means.items():
            counts = torch.bincount(samples.labels * C + task.predicted(output), minlength=C * C)
            confusion += [[part, estimate, *divmod(cell, C), count] for cell, count in enumerate(counts.tolist())]
    _write_csv(folder.accuracy, ["part", "estimate", *task.quantities], rows)
    if confusion:
        _write_csv(folder.confusion, ["part", "estimate", "actual", "predicted", "count"], confusion)


def constant_scores(task: Task, classes: int, train: Samples, samples: Samples, name: str) -> dict[str, float]:
    """Return the scores of the best constant prediction; ``name`` replaces the estimate in the names of the scores.

    For classes, the prediction is the most frequent class of the training part, with the class frequencies as
    probabilities; for real targets, the prediction is their mean over the training part.
    """
    if train.labels is None or samples.labels is None:
        mean = train.y.mean(dim=-1, keepdim=True)
        output = (mean[:, None] if mean.ndim == 1 else mean).expand(-1, len(samples))
        return {key: float(value) for key, value in task.scores(output, samples, name).items()}
    frequencies = torch.bincount(train.labels, minlength=classes).double() / len(train)
    probabilities = apply_probability_floor(frequencies[:, None].expand(-1, len(samples)))
    hits = samples.labels == frequencies.argmax()
    values = {f"accuracy_{name}": accuracy_share(hits), **probability_scores(probabilities, samples.labels, name)}
    return {key: float(value) for key, value in values.items()}


def _plain(scaler: Scaler) -> dict[str, list[float]]:
    return {"shift": scaler.shift.tolist(), "factor": scaler.factor.tolist()}


def _write_csv(path: Path, header: list[str], rows: Iterable[list[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_atomically(path, text.getvalue().encode())
