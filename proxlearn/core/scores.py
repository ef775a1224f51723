"""What a cloud predicts, by both estimates, and how good that is: the names and definitions of every reported figure.

The *unweighted* estimate is the plain mean of the neurons, the *weighted* one their mean under rho / sum rho. If the
rho_i are density values at points drawn from that same density, the plain mean already estimates the integral and the
weighted one estimates the integral against rho^2: both are reported, neither is called the right one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.energy import risk
from proxlearn.core.neurons import Neuron
from proxlearn.core.problem import Samples

ESTIMATES = ("weighted", "unweighted")
SATURATION = 1e-3
"""How near logistic(f) must be to a label for the paper's code to count it."""


def estimates(neuron: Neuron, cloud: PointCloud, samples: Samples) -> dict[str, Tensor]:
    """f at the samples, by both estimates."""
    weights = torch.softmax(cloud.log_rho, dim=0)
    uniform = torch.full_like(weights, 1 / len(weights))
    both = neuron.respond(cloud.theta, samples).over_particles(torch.stack((weights, uniform), dim=1))
    return {"weighted": both[:, 0], "unweighted": both[:, 1]}


def predicted_class(f: Tensor) -> Tensor:
    """The sign of f, as a class index."""
    return (f > 0).long()


def probability(f: Tensor) -> Tensor:
    """P(class 1): f regresses -1/+1, so its target is 2 p - 1; kept away from 0 and 1 for the log-loss."""
    return ((1 + f.double()) / 2).clamp(1e-6, 1 - 1e-6)


def binary_scores(f: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
    """Risk, accuracy, log-loss, and the paper's own two quantities."""
    labels = samples.labels
    assert labels is not None
    label01, n = labels.to(f.dtype), len(labels)
    logistic = torch.sigmoid(f)
    p = probability(f)
    if estimate == "weighted":
        g = predicted_class(f).to(f.dtype)
    else:
        # The published code rounds a probability to 0 or 1 only where it is within 1e-3 of it.
        g = torch.where(logistic < SATURATION, 0.0, torch.where(logistic > 1 - SATURATION, 1.0, logistic))
    scores = {
        f"risk_{estimate}": risk(f, samples.y),
        f"accuracy_{estimate}": (predicted_class(f) == labels).to(f.dtype).mean(),
        f"log_loss_{estimate}": -torch.where(labels == 1, p, 1 - p).log().mean(),
        f"risk_paper_{estimate}": 0.5 / n * torch.linalg.vector_norm(label01 - g),
    }
    if estimate == "unweighted":
        scores["accuracy_unweighted_saturated"] = ((logistic - label01).abs() < SATURATION).to(f.dtype).mean()
    return scores


def regression_scores(f: Tensor, samples: Samples, estimate: str) -> dict[str, Tensor]:
    """Risk, its root, and the share of the variance explained."""
    mse = risk(f, samples.y)
    variance = (samples.y - samples.y.mean()).square().mean()
    return {f"risk_{estimate}": mse, f"rmse_{estimate}": mse.sqrt(), f"r2_{estimate}": 1 - mse / variance}


def scores(neuron: Neuron, cloud: PointCloud, samples: Samples) -> dict[str, float]:
    """Every figure of one part of the data, by name."""
    score = regression_scores if samples.labels is None else binary_scores
    found: dict[str, Tensor] = {}
    for estimate, f in estimates(neuron, cloud, samples).items():
        found |= score(f, samples, estimate)
    return {name: float(value) for name, value in found.items()}
