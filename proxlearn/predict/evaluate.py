"""How good a model is on labelled rows that it has not seen: the figures of a run, by the same names and code."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from proxlearn.core.estimates import ESTIMATES
from proxlearn.core.samples import Samples
from proxlearn.data import labels
from proxlearn.data.magnitude import MAX_MAGNITUDE, max_scaled_magnitude
from proxlearn.data.numerals import parse_numeral
from proxlearn.data.row_reader import Chunk
from proxlearn.errors import InputError, did_you_mean
from proxlearn.predict.model import Model


def evaluate(model: Model, pieces: Iterable[Chunk]) -> dict[str, Any]:
    """Of each estimate every quantity of the task, None where it is undefined.

    Of a real target besides ``rmse_in_units``, in the target's own.
    """
    answers: dict[str, list[torch.Tensor]] = {estimate: [] for estimate in ESTIMATES}
    targets: list[np.ndarray] = []
    rows = 0
    for piece in pieces:
        targets.append(_targets(model, piece.target, rows))
        rows += len(piece.X)
        for estimate, found in model.answers(piece.X).items():
            answers[estimate].append(found)
    if rows == 0:
        raise InputError("there is a header line and no row to score", "give at least one row")
    samples = _samples(model, np.concatenate(targets))
    figures: dict[str, Any] = {"rows": rows}
    for estimate in ESTIMATES:
        scored = model.task.scores(torch.cat(answers[estimate], dim=-1), samples, estimate)
        numbers = {name: float(scored[f"{name}_{estimate}"]) for name in model.task.quantities}
        if not model.classes:
            numbers["rmse_in_units"] = numbers["rmse"] / float(model.target_scaler.factor[0])
        # R2 divides by the variance of the targets, which is 0 for a single row.
        figures[estimate] = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return figures


def _targets(model: Model, cells: list[str], first: int) -> np.ndarray:
    """Class indices, or real numbers, of the target's cells; ``first`` is the first cell's row in the table."""
    if model.classes:
        found = labels.indices(cells, model.classes)
        if (found < 0).any():
            row = int((found < 0).argmax())
            problem = f"column `{model.target}` holds {cells[row][:40]!r} in data row {first + row + 1}"
            raise InputError(f"{problem}, none of the classes of the run", did_you_mean(cells[row], model.classes))
        return found
    numbers = np.array([parse_numeral(cell) for cell in cells], dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = model.target_scaler(numbers[:, None])[:, 0]
    # Scores are means of squares.
    usable = (np.abs(numbers) <= MAX_MAGNITUDE) & (np.abs(scaled) <= max_scaled_magnitude("float64"))
    if not usable.all():
        row = int((~usable).argmax())
        problem = f"column `{model.target}` holds {cells[row][:40]!r} in data row {first + row + 1}"
        why = "too large a number" if np.isfinite(numbers[row]) else "no finite number"
        raise InputError(f"{problem}, {why}", "correct the cell, or delete the row")
    return numbers


def _samples(model: Model, target: np.ndarray) -> Samples:
    """What the task scores against; the features have done their part."""
    X = torch.empty(len(target), 0, dtype=torch.float64)
    if not model.classes:
        return Samples(X, torch.from_numpy(model.target_scaler(target[:, None])[:, 0]))
    indices = torch.from_numpy(target)
    return Samples(X, model.neuron.targets(indices), indices)
