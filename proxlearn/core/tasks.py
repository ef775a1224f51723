"""Tasks, which convert the weighted or unweighted mean output of a cloud to predictions and scores.

A neuron defines the output of each particle (``Neuron.outputs``); a task defines how the mean output is
interpreted and which metrics are computed. No other module distinguishes between tasks.

The *unweighted* estimate is the mean of the particles' outputs with equal weights, and the *weighted* estimate is their
mean with the weights rho / sum rho. If the rho_i are the values of a density at points drawn from that density, the
unweighted mean already estimates the integral against rho, and the weighted mean estimates the integral against rho^2.
Both estimates are therefore reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from proxlearn.core import options
from proxlearn.core.cloud import PointCloud
from proxlearn.core.losses import Loss, quadratic
from proxlearn.core.metrics import accuracy_share, apply_probability_floor, check_columns, probability_scores
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.samples import Samples
from proxlearn.core.sharding import undivided

ESTIMATES = ("weighted", "unweighted")
MOST_OUTPUTS = 2**20
"""Maximum number of outputs, over all particles, that are in memory at once; more outputs are computed in blocks of
samples. The memory of a block of this size is used again for the next block. For larger blocks, the system would clear
new memory each time, which takes longer than the computation."""


def samples_per_block(neuron: Neuron, cloud: PointCloud) -> int:
    """Return the number of samples for which the outputs of all particles are computed at once."""
    return max(1, MOST_OUTPUTS // (len(cloud.theta) * neuron.width))


def estimate_weights(cloud: PointCloud) -> dict[str, Tensor]:
    """Return the weights of the particles in each of the two estimates; both sets of weights sum to 1."""
    weighted = cloud.shares
    return {"weighted": weighted, "unweighted": torch.full_like(weighted, 1 / len(weighted))}


def mean_outputs(outputs: Tensor, cloud: PointCloud) -> dict[str, Tensor]:
    """Return both estimates of the mean over the particles, each of shape (outputs, n)."""
    weights = estimate_weights(cloud)
    both = torch.stack(list(weights.values())) @ outputs.flatten(1)
    return dict(zip(weights, both.view(2, *outputs.shape[1:]), strict=True))


def estimates(neuron: Neuron, cloud: PointCloud, X: Tensor) -> dict[str, Tensor]:
    """Return both estimates of the output of the cloud for unlabelled samples, each of shape (outputs, n)."""
    blocks = torch.split(X, samples_per_block(neuron, cloud))
    parts = [mean_outputs(neuron.outputs(cloud.theta, block), cloud) for block in blocks]
    return {name: torch.cat([part[name] for part in parts], dim=-1) for name in ESTIMATES}


def standard_error(outputs: Tensor, cloud: PointCloud, estimate: str) -> Tensor:
    """Return the standard error of an estimate over the particles, shape (outputs, n).

    The standard error sqrt(sum w^2 (Phi - f)^2), where the weights w sum to 1, estimates how much the output would vary
    if the N particles were drawn again, independently and together with their weights. If all weights are equal, it is
    the standard deviation of the particles' outputs divided by sqrt(N). It shows where the particles disagree, not how
    noisy the targets are. Trained particles are not independent: they compensate for one another, so the output varies
    much less from seed to seed than the standard error suggests.
    """
    weights, flat = estimate_weights(cloud)[estimate], outputs.flatten(1)
    deviations = (flat - weights @ flat).square()
    return (weights.square() @ deviations).sqrt().view(outputs.shape[1:])


SATURATION = 1e-3
"""Distance of logistic(f) from a label within which the paper's code counts a prediction as correct."""


class Task(Protocol):
    """Protocol of a task, which converts the mean output over the particles (outputs x n) to predictions and scores."""

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of the scores of each estimate, in the order of the columns of a table."""

    def classes(self, output: Tensor) -> int:
        """Return the number of classes, or 0 for a real target."""

    def predicted(self, output: Tensor) -> Tensor:
        """Return the n predictions: class indices, or values for a real target (outputs x n for several targets)."""

    def probabilities(self, output: Tensor) -> Tensor:
        """Return the probabilities of the classes, C x n in float64; for a real target, 0 x n.

        Each column sums to 1, and no entry is below ``LEAST_PROBABILITY``.
        """

    def standard_errors(self, output: Tensor, output_errors: Tensor) -> Tensor:
        """Return the standard errors of the probabilities (C x n) or predictions, given those of the mean output."""

    def scores(self, output: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        """Return the scores of one estimate, by name."""

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        """Return the mean scores of the individual particles, by name; ``outputs`` has the shape N x outputs x n."""


def class_probabilities(loss: Loss, output: Tensor) -> Tensor | None:
    """Return the probabilities (C x n, float64) that a loss defines, after a check; None if it does not define any."""
    probabilities = loss.probabilities(output)
    return None if probabilities is None else check_columns(f"the loss `{loss.name}`", probabilities, output)


@dataclass(frozen=True)
class Binary:
    """Classification into two classes with the targets -1 and +1; the sign of f determines the predicted class."""

    loss: Loss = quadratic

    quantities: ClassVar[tuple[str, ...]] = ("accuracy", "log_loss", "calibration_error", "risk", "risk_paper")

    def classes(self, output: Tensor) -> int:
        return 2

    def predicted(self, output: Tensor) -> Tensor:
        return (output[0] > 0).long()

    def probabilities(self, output: Tensor) -> Tensor:
        probabilities = class_probabilities(self.loss, output)
        if probabilities is not None:
            return apply_probability_floor(probabilities)
        # The target of f is 2 p - 1, but f itself is not limited to [-1, 1].
        p = ((1 + output[0].double()) / 2).clamp(0, 1)
        return apply_probability_floor(torch.stack((1 - p, p)))

    def standard_errors(self, output: Tensor, output_errors: Tensor) -> Tensor:
        if class_probabilities(self.loss, output) is not None:
            return propagated_errors(self.loss, output, output_errors)
        return output_errors.expand(2, -1) / 2

    def scores(self, output: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        f, labels = output[0], labels_of(samples)
        label01, logistic = labels.to(f.dtype), torch.sigmoid(f)
        if estimate == "weighted":
            g = self.predicted(output).to(f.dtype)
        else:
            # The published code rounds a probability to 0 or 1 only if the distance is below 1e-3.
            g = torch.where(logistic < SATURATION, 0.0, torch.where(logistic > 1 - SATURATION, 1.0, logistic))
        values = {
            f"risk_{estimate}": self.loss.mean(f, samples.y),
            f"accuracy_{estimate}": accuracy_share(self.predicted(output) == labels),
            **probability_scores(self.probabilities(output), labels, estimate),
            f"risk_paper_{estimate}": 0.5 / len(labels) * torch.linalg.vector_norm(label01 - g),
        }
        if estimate == "unweighted":
            values["accuracy_unweighted_saturated"] = accuracy_share((logistic - label01).abs() < SATURATION)
        return values

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class Multiclass:
    """Classification by the largest output; the outputs are probabilities, logits, or fits to one-hot vectors."""

    loss: Loss = quadratic

    quantities: ClassVar[tuple[str, ...]] = ("accuracy", "log_loss", "calibration_error", "risk", "risk_paper")

    def classes(self, output: Tensor) -> int:
        return output.shape[0]

    def predicted(self, output: Tensor) -> Tensor:
        return output.argmax(dim=0)

    def probabilities(self, output: Tensor) -> Tensor:
        probabilities = class_probabilities(self.loss, output)
        if probabilities is not None:
            return apply_probability_floor(probabilities)
        # Outputs of softmax neurons are on the simplex; outputs that regress one-hot targets may leave it.
        positive = output.double().clamp_min(0)
        total = positive.sum(dim=0)
        return apply_probability_floor(torch.where(total > 0, positive / total, 1 / len(output)))

    def standard_errors(self, output: Tensor, output_errors: Tensor) -> Tensor:
        if class_probabilities(self.loss, output) is not None:
            return propagated_errors(self.loss, output, output_errors)
        return output_errors

    def scores(self, output: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        labels = labels_of(samples)
        f = output.gather(0, labels[None])[0]
        # A neuron with several outputs is fitted to all classes; one that returns a probability is fitted to the true
        # class only.
        regressed = output if samples.y.ndim == 2 else f
        return {
            f"risk_{estimate}": self.loss.mean(regressed, samples.y),
            f"accuracy_{estimate}": accuracy_share(self.predicted(output) == labels),
            **probability_scores(self.probabilities(output), labels, estimate),
            f"risk_paper_{estimate}": torch.linalg.vector_norm(1 - f) / len(labels),
        }

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        # The paper's accuracy for SHD: every particle predicts a class, and each prediction is compared with the label.
        return {"accuracy_particle": accuracy_share(outputs.argmax(dim=1) == labels_of(samples))}


@dataclass(frozen=True)
class Regression:
    """Regression with a real target; the prediction is f itself."""

    loss: Loss = quadratic

    quantities: ClassVar[tuple[str, ...]] = ("risk", "rmse", "r2")

    def classes(self, output: Tensor) -> int:
        return 0

    def predicted(self, output: Tensor) -> Tensor:
        return output[0] if len(output) == 1 else output

    def probabilities(self, output: Tensor) -> Tensor:
        return output[:0].double()

    def standard_errors(self, output: Tensor, output_errors: Tensor) -> Tensor:
        return output_errors

    def scores(self, output: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
        predicted = self.predicted(output)
        mse = quadratic.mean(predicted, samples.y)
        variance = quadratic.mean(samples.y.mean(-1, keepdim=True), samples.y)
        risk = self.loss.mean(predicted, samples.y)
        return {f"risk_{estimate}": risk, f"rmse_{estimate}": mse.sqrt(), f"r2_{estimate}": 1 - mse / variance}

    def particle_scores(self, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        return {}


TASKS: dict[options.Task, Callable[[Loss], Task]] = {
    "binary": Binary,
    "multiclass": Multiclass,
    "regression": Regression,
}
"""The task classes by name; each is constructed from the loss."""


def task_of(neuron: Neuron, samples: Samples, loss: Loss = quadratic) -> Task:
    """Return the task of a neuron on these samples: classification if the samples have labels, otherwise regression."""
    return TASKS[next(name for name in neuron.tasks if (name == "regression") == (samples.labels is None))](loss)


@dataclass(frozen=True)
class CloudOutputs:
    """The mean outputs of a cloud for samples, and the scores of its particles."""

    means: dict[str, Tensor]
    """The mean output over the particles for each estimate, of shape (outputs, n)."""
    particle_scores: dict[str, float]
    """Scores of the individual particles, averaged over the particles."""

    def scores(self, task: Task, samples: Samples) -> dict[str, float]:
        """Return every metric, by name."""
        values: dict[str, Tensor] = {}
        for estimate, mean in self.means.items():
            values |= task.scores(mean, samples, estimate)
        return {name: float(value) for name, value in values.items()} | self.particle_scores


def evaluate_cloud(neuron: Neuron, cloud: PointCloud, samples: Samples, task: Task) -> CloudOutputs:
    """Return the mean outputs and the particle scores of a cloud, computed in blocks of samples."""
    n = len(samples)
    size = samples_per_block(neuron, cloud)
    blocks = [samples] if size >= n else [samples.take_rows(rows) for rows in torch.split(torch.arange(n), size)]
    means: dict[str, list[Tensor]] = {}
    particle_scores: dict[str, float] = {}
    for block in blocks:
        outputs = neuron.outputs(cloud.theta, block.X)
        for estimate, mean in mean_outputs(outputs, cloud).items():
            means.setdefault(estimate, []).append(mean)
        # The scores of the individual particles are means over the samples.
        for name, value in task.particle_scores(outputs, block).items():
            particle_scores[name] = particle_scores.get(name, 0.0) + float(value) * (len(block) / n)
    return CloudOutputs({estimate: torch.cat(parts, dim=1) for estimate, parts in means.items()}, particle_scores)


def evaluate_blocks(neuron: Neuron, cloud: PointCloud, samples: Samples, task: Task) -> CloudOutputs:
    """Return the mean outputs and the particle scores of a divided cloud, computed block by block to save memory.

    A single process computes all blocks in order on one thread, so that the rounding depends only on N.
    """
    shards, weights = undivided(len(cloud.theta)), estimate_weights(cloud)
    shapes: list[torch.Size] = []
    totals: dict[str, float] = {}

    def block_sums() -> Iterator[np.ndarray]:
        for rows in shards.block_rows:
            outputs = neuron.outputs(cloud.theta[rows].clone(), samples.X)
            shapes.append(outputs.shape[1:])
            for name, value in task.particle_scores(outputs, samples).items():
                totals[name] = totals.get(name, 0.0) + float(value) * len(outputs) / shards.N
            yield (torch.stack([of_all[rows] for of_all in weights.values()]) @ outputs.flatten(1)).numpy()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sums = torch.from_numpy(shards.sum_blocks(block_sums()))
    finally:
        torch.set_num_threads(threads)
    means = (mean.reshape(shapes[0]) for mean in sums)
    return CloudOutputs(dict(zip(weights, means, strict=True)), totals)


def scores(
    neuron: Neuron, cloud: PointCloud, samples: Samples, loss: Loss = quadratic, divided: bool = False
) -> dict[str, float]:
    """Return every metric for the samples, by name; ``divided`` means that the cloud is divided among ranks."""
    task = task_of(neuron, samples, loss)
    return (evaluate_blocks if divided else evaluate_cloud)(neuron, cloud, samples, task).scores(task, samples)


def propagated_errors(loss: Loss, output: Tensor, output_errors: Tensor) -> Tensor:
    """Return the standard errors of the probabilities, propagated linearly from independent errors of the outputs."""

    def probabilities(f: Tensor) -> Tensor:
        values = loss.probabilities(f[:, None])
        assert values is not None
        return values[:, 0]

    jacobian = torch.func.vmap(torch.func.jacrev(probabilities), in_dims=1)(output.double())
    return torch.einsum("mcj,jm->cm", jacobian.square(), output_errors.double().square()).sqrt()


def labels_of(samples: Samples) -> Tensor:
    assert samples.labels is not None, "the metrics of a classification need labels"
    return samples.labels
