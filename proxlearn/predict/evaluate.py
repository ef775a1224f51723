"""Metrics of a model on labelled rows, with the same names and definitions as the metrics of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from proxlearn.core.samples import Samples
from proxlearn.core.tasks import ESTIMATES
from proxlearn.data import target_encoding
from proxlearn.data.column_inspection import parse_number
from proxlearn.data.csv_file import TableFormat
from proxlearn.data.new_rows import Chunk
from proxlearn.data.scaling import MAX_MAGNITUDE, max_scaled_magnitude
from proxlearn.errors import InputError, did_you_mean
from proxlearn.predict.model import Model


def evaluate(model: Model, chunks: Iterable[Chunk]) -> dict[str, Any]:
    """Return the number of rows and, for each estimate, every metric of the task; an undefined metric is None.

    For a real target, the result also contains ``rmse_in_units``, the RMSE in the units of the target; for several real
    targets, it contains ``rmse_in_units_NAME`` for each of them instead.
    """
    outputs: dict[str, list[torch.Tensor]] = {estimate: [] for estimate in ESTIMATES}
    targets: list[np.ndarray] = []
    rows = 0
    for chunk in chunks:
        cells = {model.target or "target": chunk.target, **chunk.further_targets}
        numbers = chunk.row_numbers
        parsed = [_parse_targets(replace(model, target=name), i, cells[name], numbers) for i, name in enumerate(cells)]
        targets.append(parsed[0] if len(parsed) == 1 else np.column_stack(parsed))
        rows += len(chunk.X)
        for estimate, f in model.mean_outputs(chunk.X).items():
            outputs[estimate].append(f)
    if rows == 0:
        raise InputError("the table has a header line but no rows", "give at least one row")
    samples = _build_samples(model, np.concatenate(targets))
    result: dict[str, Any] = {"rows": rows}
    for estimate in ESTIMATES:
        scores = model.task.scores(torch.cat(outputs[estimate], dim=-1), samples, estimate)
        metrics = {name: float(scores[f"{name}_{estimate}"]) for name in model.task.quantities}
        if not model.classes and len(model.targets) < 2:
            metrics["rmse_in_units"] = metrics["rmse"] / float(model.target_scaler.factor[0])
        elif not model.classes:
            metrics |= _errors_in_units(model, torch.cat(outputs[estimate], dim=-1), samples)
        # R2 divides by the variance of the targets, which is 0 for a single row.
        result[estimate] = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    return result


def _errors_in_units(model: Model, f: torch.Tensor, samples: Samples) -> dict[str, float]:
    """Return the RMSE of each target column in the units of that column, with keys ``rmse_in_units_NAME``."""
    errors = (f - samples.y).square().mean(dim=-1).sqrt().numpy() / model.target_scaler.factor
    return {f"rmse_in_units_{name}": float(error) for name, error in zip(model.targets, errors, strict=True)}


def _parse_targets(model: Model, place: int, cells: list[str], row_numbers: np.ndarray) -> np.ndarray:
    """Return the cells of a target column as class indices or numbers; ``place`` is the index of this target column.

    ``row_numbers`` contains the numbers of the rows of these cells in the table, counted from 1. Raise InputError if a
    cell is not valid.
    """
    if model.classes:
        indices = target_encoding.indices(cells, model.classes)
        if (indices < 0).any():
            row = int((indices < 0).argmax())
            problem = f"{_locate(model, cells, row_numbers, row)} is not one of the classes of the run"
            raise InputError(problem, did_you_mean(cells[row], model.classes))
        return indices
    form = TableFormat() if model.rows is None else model.rows.form
    numbers = np.array([parse_number(cell.strip(), form) for cell in cells], dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (numbers - model.target_scaler.shift[place]) * model.target_scaler.factor[place]
    # Metrics are means of squares, which must not overflow.
    usable = (np.abs(numbers) <= MAX_MAGNITUDE) & (np.abs(scaled) <= max_scaled_magnitude("float64"))
    if not usable.all():
        row = int((~usable).argmax())
        reason = "is too large" if np.isfinite(numbers[row]) else "is not a finite number"
        raise InputError(f"{_locate(model, cells, row_numbers, row)} {reason}", "correct the cell, or delete the row")
    return numbers


def _locate(model: Model, cells: list[str], row_numbers: np.ndarray, row: int) -> str:
    return f"the value {cells[row][:40]!r} in data row {row_numbers[row]} of column `{model.target}`"


def _build_samples(model: Model, target: np.ndarray) -> Samples:
    """Return samples with the given targets and without features, which the computation of scores does not need."""
    X = torch.empty(len(target), 0, dtype=torch.float64)
    if not model.classes:
        if target.ndim == 2:
            return Samples(X, torch.from_numpy(model.target_scaler(target).T.copy()))
        return Samples(X, torch.from_numpy(model.target_scaler(target[:, None])[:, 0]))
    indices = torch.from_numpy(target)
    return Samples(X, model.neuron.targets(indices), indices)
