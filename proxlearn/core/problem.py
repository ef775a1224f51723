"""The learning problem: training samples and a neuron."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.samples import Samples


@dataclass(frozen=True)
class Problem:
    """Training samples and the neuron whose mean is fitted to them."""

    neuron: Neuron
    samples: Samples
    batch: bool = False
    """Whether the samples are one mini-batch, which the next step replaces by another."""

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Problem:
        return Problem(self.neuron, self.samples.to(device, dtype), self.batch)
