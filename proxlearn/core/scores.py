"""What a cloud predicts, by both estimates, and how good that is: the names and definitions of every reported figure.

The *unweighted* estimate is the plain mean of the neurons, the *weighted* one their mean under rho / sum rho. If the
rho_i are density values at points drawn from that same density, the plain mean already estimates the integral and the
weighted one estimates the integral against rho^2: both are reported, neither is called the right one.

A neuron says what each particle answers (``Neuron.outputs``); a *task*, here, says what an answer means and how it is
scored. Nobody else distinguishes tasks.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from proxlearn.core import options
from proxlearn.core.cloud import PointCloud
from proxlearn.core.energy import risk
from proxlearn.core.neurons import Neuron
from proxlearn.core.problem import Samples

ESTIMATES = ("weighted", "unweighted")
SATURATION = 1e-3
"""How near logistic(f) must be to a label for the paper's code to count it."""
LEAST_PROBABILITY = 1e-6
"""Where the log-loss stops looking: one impossible answer would hide all others."""


class Task(Protocol):
    """How answers (outputs x n, the mean over particles) are read and scored."""

    @property
    def quantities(self) -> tuple[str, ...]:
        """Scores that exist for each estimate, in the order of a table."""

    def classes(self, answers: Tensor) -> int:
        """How many classes there are; 0 where the target is a real number."""

    def predicted(self, answers: Tensor) -> Tensor:
        """What is predicted, n: class indices, or values."""

    def scores(self, answers: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        """Scores of one estimate, by name."""

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        """Scores of the particles one by one (outputs: N x outputs x n), by name."""


class Binary:
    """Classes by the sign of f, which regresses -1/+1."""

    quantities = ("accuracy", "risk", "risk_paper", "log_loss")

    def classes(self, answers: Tensor) -> int:
        return 2

    def predicted(self, answers: Tensor) -> Tensor:
        return (answers[0] > 0).long()

    def scores(self, answers: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        f, labels = answers[0], labels_of(samples)
        label01, logistic = labels.to(f.dtype), torch.sigmoid(f)
        # f's target is 2 p - 1.
        p = ((1 + f.double()) / 2).clamp(LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        if estimate == "weighted":
            g = self.predicted(answers).to(f.dtype)
        else:
            # The published code rounds a probability to 0 or 1 only where it is within 1e-3 of it.
            g = torch.where(logistic < SATURATION, 0.0, torch.where(logistic > 1 - SATURATION, 1.0, logistic))
        found = {
            f"risk_{estimate}": risk(f, samples.y),
            f"accuracy_{estimate}": share(self.predicted(answers) == labels),
            f"log_loss_{estimate}": -torch.where(labels == 1, p, 1 - p).log().mean(),
            f"risk_paper_{estimate}": 0.5 / len(labels) * torch.linalg.vector_norm(label01 - g),
        }
        if estimate == "unweighted":
            found["accuracy_unweighted_saturated"] = share((logistic - label01).abs() < SATURATION)
        return found

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        return {}


class Multiclass:
    """Classes by the largest answer, which is a probability, or is regressed on a one-hot vector."""

    quantities = ("accuracy", "risk", "risk_paper", "log_loss")

    def classes(self, answers: Tensor) -> int:
        return answers.shape[0]

    def predicted(self, answers: Tensor) -> Tensor:
        return answers.argmax(dim=0)

    def probabilities(self, answers: Tensor) -> Tensor:
        """C x n; answers that were regressed may lie outside of [0, 1], and need not add up to 1."""
        if bool((answers >= 0).all()) and torch.allclose(answers.sum(0), answers.new_ones(())):
            return answers
        p = answers.clamp(LEAST_PROBABILITY, 1.0)
        return p / p.sum(0)

    def scores(self, answers: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        labels = labels_of(samples)
        f = answers.gather(0, labels[None])[0]
        p = self.probabilities(answers).gather(0, labels[None])[0]
        # A neuron of many outputs is regressed on all classes, one that answers a probability on the right one.
        regressed = answers if samples.y.ndim == 2 else f
        return {
            f"risk_{estimate}": risk(regressed, samples.y),
            f"accuracy_{estimate}": share(self.predicted(answers) == labels),
            f"log_loss_{estimate}": -p.double().clamp_min(LEAST_PROBABILITY).log().mean(),
            f"risk_paper_{estimate}": torch.linalg.vector_norm(1 - f) / len(labels),
        }

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        # The paper's accuracy for SHD: every particle votes, and each vote is compared with the label.
        return {"accuracy_particle": share(outputs.argmax(dim=1) == labels_of(samples))}


class Regression:
    """f itself."""

    quantities = ("risk", "rmse", "r2")

    def classes(self, answers: Tensor) -> int:
        return 0

    def predicted(self, answers: Tensor) -> Tensor:
        return answers[0] if len(answers) == 1 else answers

    def scores(self, answers: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        mse = risk(self.predicted(answers), samples.y)
        variance = risk(samples.y.mean(-1, keepdim=True), samples.y)
        return {f"risk_{estimate}": mse, f"rmse_{estimate}": mse.sqrt(), f"r2_{estimate}": 1 - mse / variance}

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        return {}


TASKS: dict[options.Task, Task] = {"binary": Binary(), "multiclass": Multiclass(), "regression": Regression()}


def task_of(neuron: Neuron, samples: Samples) -> Task:
    """What a neuron is trained for on these samples: labels mean classes."""
    return TASKS[next(name for name in neuron.tasks if (name == "regression") == (samples.labels is None))]


def answers(outputs: Tensor, cloud: PointCloud) -> dict[str, Tensor]:
    """The mean over the particles, by both estimates: (outputs) x n each."""
    weights = torch.softmax(cloud.log_rho, dim=0)
    uniform = torch.full_like(weights, 1 / len(weights))
    both = (torch.stack((weights, uniform)) @ outputs.flatten(1)).view(2, *outputs.shape[1:])
    return {"weighted": both[0], "unweighted": both[1]}


def estimates(neuron: Neuron, cloud: PointCloud, X: Tensor) -> dict[str, Tensor]:
    """What the cloud answers to unlabelled samples, by both estimates: (outputs) x n each."""
    return answers(neuron.outputs(cloud.theta, X), cloud)


def scores(neuron: Neuron, cloud: PointCloud, samples: Samples) -> dict[str, float]:
    """Every figure of one part of the data, by name."""
    task, outputs = task_of(neuron, samples), neuron.outputs(cloud.theta, samples.X)
    found: dict[str, Tensor] = {}
    for estimate, mean in answers(outputs, cloud).items():
        found |= task.scores(mean, samples, estimate)
    found |= task.particle_scores(outputs, samples)
    return {name: float(value) for name, value in found.items()}


def labels_of(samples: Samples) -> Tensor:
    assert samples.labels is not None, "classes are scored against labels"
    return samples.labels


def share(hits: Tensor) -> Tensor:
    """The share of true entries."""
    return hits.double().mean()
