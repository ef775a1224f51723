"""Samples: one part of the data, as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """One part of the data (training or test), on one device and in one precision."""

    X: Tensor
    """Features, n x n_x."""
    y: Tensor
    """Regression target of f, n: -1/+1, a real target, or 1 for a neuron that returns a probability; outputs x n for a
    neuron with several outputs."""
    labels: Tensor | None = None
    """Class indices, n, for classification."""

    def __len__(self) -> int:
        return self.X.shape[0]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Samples:
        labels = None if self.labels is None else self.labels.to(device)
        return Samples(self.X.to(device, dtype), self.y.to(device, dtype), labels)

    def take_rows(self, rows: Tensor) -> Samples:
        """Return the samples in the given rows."""
        labels = None if self.labels is None else self.labels[rows]
        return Samples(self.X[rows], self.y[..., rows], labels)
