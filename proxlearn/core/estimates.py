"""Two estimates of the cloud's output: weighted and unweighted.

The *unweighted* estimate is the plain mean of the neurons, and the *weighted* estimate is their mean under rho / sum
rho. If the rho_i are density values at points drawn from that same density, the plain mean already estimates the
integral, and the weighted mean estimates the integral against rho^2. Both estimates are therefore reported.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.neurons.neuron import Neuron

ESTIMATES = ("weighted", "unweighted")
MOST_OUTPUTS = 2**24
"""Maximum number of outputs, over all particles, that are in memory at once; more are computed in blocks of samples."""


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

    It is the typical change in the output if the same number of particles were drawn again, independently, from the
    distribution that the cloud represents: sqrt(sum w^2 (Phi - f)^2), which is the standard deviation of the particles'
    outputs divided by sqrt(N) if all weights are equal. It shows where the particles disagree, not how noisy the
    targets are. Trained particles are not independent: they compensate for one another, so the output varies much less
    from seed to seed.
    """
    weights, flat = estimate_weights(cloud)[estimate], outputs.flatten(1)
    deviations = (flat - weights @ flat).square()
    return (weights.square() @ deviations).sqrt().view(outputs.shape[1:])
