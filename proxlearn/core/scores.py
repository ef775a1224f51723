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
from proxlearn.core.neurons.registry import Neuron
from proxlearn.core.problem import Samples

ESTIMATES = ("weighted", "unweighted")
SATURATION = 1e-3
"""How near logistic(f) must be to a label for the paper's code to count it."""
LEAST_PROBABILITY = 1e-6
"""Of any class, in every prediction and score: a finite cloud never proves a class impossible, and one answer of 0 for
the right class would make a log-loss infinite."""
CALIBRATION_BINS = 15
"""Of equal width, over the probability of the predicted class."""


class Task(Protocol):
    """How answers (outputs x n, the mean over particles) are read and scored."""

    @property
    def quantities(self) -> tuple[str, ...]:
        """Scores that exist for each estimate, in the order of a table."""

    def classes(self, answers: Tensor) -> int:
        """How many classes there are; 0 where the target is a real number."""

    def predicted(self, answers: Tensor) -> Tensor:
        """What is predicted, n: class indices, or values."""

    def probabilities(self, answers: Tensor) -> Tensor:
        """Of every class, C x n in float64, each column on the simplex and no entry below ``LEAST_PROBABILITY``; 0 x n
        where the target is a real number."""

    def errors(self, spread: Tensor) -> Tensor:
        """Standard errors of the probabilities, C x n, or of the values, from those of the answers."""

    def scores(self, answers: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        """Scores of one estimate, by name."""

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        """Scores of the particles one by one (outputs: N x outputs x n), by name."""


class Binary:
    """Classes by the sign of f, which regresses -1/+1."""

    quantities = ("accuracy", "log_loss", "calibration_error", "risk", "risk_paper")

    def classes(self, answers: Tensor) -> int:
        return 2

    def predicted(self, answers: Tensor) -> Tensor:
        return (answers[0] > 0).long()

    def probabilities(self, answers: Tensor) -> Tensor:
        # f's target is 2 p - 1, and nothing keeps f itself within [-1, 1].
        p = ((1 + answers[0].double()) / 2).clamp(0, 1)
        return apply_probability_floor(torch.stack((1 - p, p)))

    def errors(self, spread: Tensor) -> Tensor:
        return spread.expand(2, -1) / 2

    def scores(self, answers: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        f, labels = answers[0], labels_of(samples)
        label01, logistic = labels.to(f.dtype), torch.sigmoid(f)
        if estimate == "weighted":
            g = self.predicted(answers).to(f.dtype)
        else:
            # The published code rounds a probability to 0 or 1 only where it is within 1e-3 of it.
            g = torch.where(logistic < SATURATION, 0.0, torch.where(logistic > 1 - SATURATION, 1.0, logistic))
        found = {
            f"risk_{estimate}": risk(f, samples.y),
            f"accuracy_{estimate}": accuracy_share(self.predicted(answers) == labels),
            **probability_scores(self.probabilities(answers), labels, estimate),
            f"risk_paper_{estimate}": 0.5 / len(labels) * torch.linalg.vector_norm(label01 - g),
        }
        if estimate == "unweighted":
            found["accuracy_unweighted_saturated"] = accuracy_share((logistic - label01).abs() < SATURATION)
        return found

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        return {}


class Multiclass:
    """Classes by the largest answer, which is a probability, or is regressed on a one-hot vector."""

    quantities = ("accuracy", "log_loss", "calibration_error", "risk", "risk_paper")

    def classes(self, answers: Tensor) -> int:
        return answers.shape[0]

    def predicted(self, answers: Tensor) -> Tensor:
        return answers.argmax(dim=0)

    def probabilities(self, answers: Tensor) -> Tensor:
        # Those of softmax neurons are there already; what regresses one-hot targets may leave the simplex.
        positive = answers.double().clamp_min(0)
        total = positive.sum(dim=0)
        return apply_probability_floor(torch.where(total > 0, positive / total, 1 / len(answers)))

    def errors(self, spread: Tensor) -> Tensor:
        return spread

    def scores(self, answers: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        labels = labels_of(samples)
        f = answers.gather(0, labels[None])[0]
        # A neuron of many outputs is regressed on all classes, one that answers a probability on the right one.
        regressed = answers if samples.y.ndim == 2 else f
        return {
            f"risk_{estimate}": risk(regressed, samples.y),
            f"accuracy_{estimate}": accuracy_share(self.predicted(answers) == labels),
            **probability_scores(self.probabilities(answers), labels, estimate),
            f"risk_paper_{estimate}": torch.linalg.vector_norm(1 - f) / len(labels),
        }

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        # The paper's accuracy for SHD: every particle votes, and each vote is compared with the label.
        return {"accuracy_particle": accuracy_share(outputs.argmax(dim=1) == labels_of(samples))}


class Regression:
    """f itself."""

    quantities = ("risk", "rmse", "r2")

    def classes(self, answers: Tensor) -> int:
        return 0

    def predicted(self, answers: Tensor) -> Tensor:
        return answers[0] if len(answers) == 1 else answers

    def probabilities(self, answers: Tensor) -> Tensor:
        return answers[:0].double()

    def errors(self, spread: Tensor) -> Tensor:
        return spread

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


def weights_of(cloud: PointCloud) -> dict[str, Tensor]:
    """The two estimates as weights of the particles, each summing to 1."""
    weighted = torch.softmax(cloud.log_rho, dim=0)
    return {"weighted": weighted, "unweighted": torch.full_like(weighted, 1 / len(weighted))}


def mean_outputs(outputs: Tensor, cloud: PointCloud) -> dict[str, Tensor]:
    """The mean over the particles, by both estimates: (outputs) x n each."""
    weights = weights_of(cloud)
    both = torch.stack(list(weights.values())) @ outputs.flatten(1)
    return dict(zip(weights, both.view(2, *outputs.shape[1:]), strict=True))


def estimates(neuron: Neuron, cloud: PointCloud, X: Tensor) -> dict[str, Tensor]:
    """What the cloud answers to unlabelled samples, by both estimates: (outputs) x n each."""
    return mean_outputs(neuron.outputs(cloud.theta, X), cloud)


def standard_error(outputs: Tensor, cloud: PointCloud, estimate: str) -> Tensor:
    """The standard error of an estimate as a mean over particles, (outputs) x n.

    How far the answer would typically move if as many particles were drawn anew, independently, from the law that the
    cloud stands for: sqrt(sum w^2 (Phi - f)^2), the particles' standard deviation over sqrt(N) where all weights are
    equal. It tells where the particles disagree, not how noisy the targets are. Trained particles are not independent:
    they make up for one another, so that from seed to seed the answer moves far less.
    """
    weights, flat = weights_of(cloud)[estimate], outputs.flatten(1)
    deviations = (flat - weights @ flat).square()
    return (weights.square() @ deviations).sqrt().view(outputs.shape[1:])


def scores(neuron: Neuron, cloud: PointCloud, samples: Samples) -> dict[str, float]:
    """Every figure of one part of the data, by name."""
    task, outputs = task_of(neuron, samples), neuron.outputs(cloud.theta, samples.X)
    found: dict[str, Tensor] = {}
    for estimate, mean in mean_outputs(outputs, cloud).items():
        found |= task.scores(mean, samples, estimate)
    found |= task.particle_scores(outputs, samples)
    return {name: float(value) for name, value in found.items()}


def apply_probability_floor(probabilities: Tensor) -> Tensor:
    """Probabilities (C x n) with each one at least ``LEAST_PROBABILITY``; their order in a column stays.

    What is too small is raised, and the column divided by its new sum. The sum is at most 1 + (C - 1) low, so that with
    this ``low`` the division leads back to the floor and not below it.
    """
    low = LEAST_PROBABILITY / (1 - (len(probabilities) - 1) * LEAST_PROBABILITY)
    raised = probabilities.clamp_min(low)
    return raised / raised.sum(dim=0)


def probability_scores(probabilities: Tensor, labels: Tensor, estimate: str) -> dict[str, Tensor]:
    """How good (floored) probabilities are, beyond the class they favour."""
    right = probabilities.gather(0, labels[None])[0]
    return {
        f"log_loss_{estimate}": -right.log().mean(),
        f"calibration_error_{estimate}": calibration_error(probabilities, labels),
    }


def calibration_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The expected calibration error: how far the predicted class's probability is from the share of right answers.

    In each bin of probability the two means are compared; the gaps are averaged with the bins' shares of the samples,
    so that a bin's gap is |sum(right - probability)| / n.
    """
    confidence, predicted = probabilities.max(dim=0)
    # A probability of 1 belongs to the last bin; NaN to some bin, so that the result is NaN and not an IndexError.
    bins = (confidence * CALIBRATION_BINS).long().clamp(0, CALIBRATION_BINS - 1)
    gaps = torch.zeros(CALIBRATION_BINS, dtype=confidence.dtype, device=confidence.device)
    return gaps.index_add(0, bins, (predicted == labels).double() - confidence).abs().sum() / len(labels)


def labels_of(samples: Samples) -> Tensor:
    assert samples.labels is not None, "classes are scored against labels"
    return samples.labels


def accuracy_share(hits: Tensor) -> Tensor:
    """The share of true entries."""
    return hits.double().mean()
