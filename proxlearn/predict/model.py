"""The learnt function: a cloud, the neuron it is a cloud of, and the way from the user's units and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.estimates import mean_outputs, standard_error
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.tasks import Task
from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError

BLOCK = 2**22
"""Answers of single particles alive at once (32 MiB): the memory of a prediction does not grow with its rows."""


@dataclass(frozen=True)
class Prediction:
    """What is predicted for n rows, by one estimate."""

    predicted: np.ndarray
    """Class indices, n; or values in the target's own units, n (of several targets: n x outputs)."""
    probabilities: np.ndarray
    """n x C; n x 0 where the target is a real number."""
    errors: np.ndarray
    """Standard errors (``core.estimates.standard_error``): of each probability, n x C, or of the values."""

    @property
    def spread(self) -> np.ndarray:
        """The standard error of what is predicted: of the value, or of the predicted class's probability."""
        if not self.probabilities.shape[1]:
            return self.errors
        found: np.ndarray = np.take_along_axis(self.errors, self.predicted[:, None], axis=1)[:, 0]
        return found


@dataclass(frozen=True)
class Model:
    """Answers to rows in the user's own units, in float64."""

    neuron: Neuron
    task: Task
    cloud: PointCloud
    scaler: Scaler
    target_scaler: Scaler
    columns: tuple[str, ...]
    classes: tuple[str, ...] = ()
    target: str | None = None
    """The name of the target's column, where it had one."""

    def answers(self, X: np.ndarray) -> dict[str, Tensor]:
        """By both estimates, (outputs) x n: what the task reads."""
        blocks = [mean_outputs(outputs, self.cloud) for outputs in self._outputs(X)]
        both = {name: torch.cat([block[name] for block in blocks], dim=-1) for name in blocks[0]}
        for f in both.values():
            self._check_finite(X, f)
        return both

    def values(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """f by both estimates, in the target's own units."""
        return {name: self._in_units(f) for name, f in self.answers(X).items()}

    def labels(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Class indices by both estimates."""
        return {name: self.task.predicted(each).numpy() for name, each in self.answers(X).items()}

    def predict(self, X: np.ndarray, estimate: str = "weighted") -> Prediction:
        """Everything that is to be said of ``X``, rows x features."""
        parts = [
            (mean_outputs(outputs, self.cloud)[estimate], standard_error(outputs, self.cloud, estimate))
            for outputs in self._outputs(X)
        ]
        f, errors = (torch.cat(each, dim=-1) for each in zip(*parts, strict=True))
        self._check_finite(X, f)
        deviations = self.task.standard_errors(errors).T.numpy()
        if self.classes:
            return Prediction(self.task.predicted(f).numpy(), self.task.probabilities(f).T.numpy(), deviations)
        values = self._in_units(f)
        self._check_finite(X, torch.from_numpy(np.atleast_2d(values.T)))
        return Prediction(values, np.empty((len(X), 0)), _one_or_many(deviations / self.target_scaler.factor))

    def _outputs(self, X: np.ndarray) -> Iterator[Tensor]:
        """What each particle says of each row, N x (outputs) x rows, block by block."""
        N, outputs = len(self.cloud.theta), max(1, len(self.classes), len(self.target_scaler.shift))
        rows = max(1, BLOCK // (N * outputs))
        with torch.no_grad():
            for start in range(0, max(1, len(X)), rows):
                with np.errstate(over="ignore", invalid="ignore"):
                    # What overflows is refused once the answer is known not to be finite.
                    scaled = torch.from_numpy(self.scaler(X[start : start + rows]))
                yield self.neuron.outputs(self.cloud.theta, scaled)

    def _check_finite(self, X: np.ndarray, f: Tensor) -> None:
        """Refuse rows without a finite answer (outputs x n), by the column that is farthest from the training rows."""
        finite = f.isfinite().all(dim=0).numpy()
        if finite.all():
            return
        row = X[int((~finite).argmax())]
        with np.errstate(all="ignore"):
            column = int(np.nan_to_num(np.abs(self.scaler(row[None])[0]), nan=np.inf).argmax())
        name = f"column `{self.columns[column]}`" if self.columns else f"feature {column}"
        problem = f"{name} holds {row[column]:.6g}, too far from the training rows for a finite prediction"
        raise InputError(problem, "correct the number, or delete its row")

    def _in_units(self, f: Tensor) -> np.ndarray:
        with np.errstate(over="ignore"):
            return _one_or_many(f.T.numpy() / self.target_scaler.factor + self.target_scaler.shift)


def _one_or_many(values: np.ndarray) -> np.ndarray:
    """n x outputs, as users write it: one output is a vector."""
    return values[:, 0] if values.shape[1] == 1 else values
