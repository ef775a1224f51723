"""What is learnt from: data and a neuron, which is all that the recursion knows of the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from proxlearn.core.neurons.registry import Neuron


@dataclass(frozen=True)
class Samples:
    """One part of the data (training or test), on one device and in one precision."""

    X: Tensor
    """Features, n x n_x."""
    y: Tensor
    """What f is regressed on, n: -1/+1, a real target, or 1 for a neuron that answers a probability; outputs x n for a
    neuron of many outputs."""
    labels: Tensor | None = None
    """Class indices, n, for classification."""

    def __len__(self) -> int:
        return self.X.shape[0]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Samples:
        labels = None if self.labels is None else self.labels.to(device)
        return Samples(self.X.to(device, dtype), self.y.to(device, dtype), labels)


@dataclass(frozen=True)
class Problem:
    """Training samples and the neuron whose mean is fitted to them."""

    neuron: Neuron
    samples: Samples
    batch: bool = False
    """Whether the samples are one draw from the training samples, and others will take their place."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Problem:
        return Problem(self.neuron, self.samples.to(device, dtype), self.batch)
