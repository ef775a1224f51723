"""The learnt function as a run folder holds it: model.json and the newest cloud, and no data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.neurons import NEURONS, Neuron
from proxlearn.core.scores import TASKS, Task, estimates
from proxlearn.data.scaling import Scaler
from proxlearn.run.checkpoint import newest_valid
from proxlearn.views.source import Run


@dataclass(frozen=True)
class Model:
    """Answers to rows in the user's own units, in float64."""

    neuron: Neuron
    task: Task
    cloud: PointCloud
    scaler: Scaler
    target_scaler: Scaler

    def answers(self, X: np.ndarray) -> dict[str, Tensor]:
        """By both estimates, (outputs) x n: what the task reads."""
        return estimates(self.neuron, self.cloud, torch.from_numpy(self.scaler(X)))

    def values(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """f by both estimates, in the target's own units."""
        unit = self.target_scaler
        return {name: f[0].numpy() / unit.factor + unit.shift for name, f in self.answers(X).items()}

    def classes(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Class indices by both estimates."""
        return {name: self.task.predicted(each).numpy() for name, each in self.answers(X).items()}


def load(run: Run) -> Model | None:
    """The newest whole cloud's; None where a run has stored none yet."""
    found = newest_valid(run.path / "checkpoints")
    if found is None:
        return None
    described = run.model
    return Model(
        NEURONS[described["neuron"]](len(described["classes"])),
        TASKS[described["task"]],
        found.cloud.to("cpu", torch.float64),
        *(
            Scaler(np.array(described[key]["shift"]), np.array(described[key]["factor"]))
            for key in ("scaling", "target_scaling")
        ),
    )
