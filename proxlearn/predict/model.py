"""The learnt function: a cloud, the neuron it is a cloud of, and the way from the user's units and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.neurons import Neuron
from proxlearn.core.scores import Task, answers, spread
from proxlearn.data.scaling import Scaler

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
    """Standard errors from the cloud (``core.scores.spread``): of each probability, n x C, or of the values."""

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
        blocks = [answers(outputs, self.cloud) for outputs in self._outputs(X)]
        return {name: torch.cat([block[name] for block in blocks], dim=-1) for name in blocks[0]}

    def values(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """f by both estimates, in the target's own units."""
        return {name: self._in_units(f) for name, f in self.answers(X).items()}

    def labels(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Class indices by both estimates."""
        return {name: self.task.predicted(each).numpy() for name, each in self.answers(X).items()}

    def predict(self, X: np.ndarray, estimate: str = "weighted") -> Prediction:
        """Everything that is to be said of ``X``, rows x features."""
        parts = [
            (answers(outputs, self.cloud)[estimate], spread(outputs, self.cloud, estimate))
            for outputs in self._outputs(X)
        ]
        f, errors = (torch.cat(each, dim=-1) for each in zip(*parts, strict=True))
        deviations = self.task.errors(errors).T.numpy()
        if self.classes:
            return Prediction(self.task.predicted(f).numpy(), self.task.probabilities(f).T.numpy(), deviations)
        return Prediction(
            self._in_units(f), np.empty((len(X), 0)), _one_or_many(deviations / self.target_scaler.factor)
        )

    def _outputs(self, X: np.ndarray) -> Iterator[Tensor]:
        """What each particle says of each row, N x (outputs) x rows, block by block."""
        N, outputs = len(self.cloud.theta), max(1, len(self.classes), len(self.target_scaler.shift))
        rows = max(1, BLOCK // (N * outputs))
        with torch.no_grad():
            for start in range(0, max(1, len(X)), rows):
                scaled = torch.from_numpy(self.scaler(X[start : start + rows]))
                yield self.neuron.outputs(self.cloud.theta, scaled)

    def _in_units(self, f: Tensor) -> np.ndarray:
        return _one_or_many(f.T.numpy() / self.target_scaler.factor + self.target_scaler.shift)


def _one_or_many(values: np.ndarray) -> np.ndarray:
    """n x outputs, as users write it: one output is a vector."""
    return values[:, 0] if values.shape[1] == 1 else values
