"""Samples (features, targets and weights) as tensors, and functions that create and select them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxlearn.errors import InputError
from proxlearn.printable_text import counted

__all__ = ["Samples", "as_tensor", "hold_out", "limit_rows", "make_features", "make_samples"]


@dataclass(frozen=True)
class Samples:
    """The samples of a training or test set, on one device and in one precision."""

    X: Tensor
    """Features, shape (n, n_x)."""
    y: Tensor
    """Targets of f: n numbers (-1/+1, real targets, or 1 for a neuron that returns a probability), or outputs x n for a
    neuron with several outputs."""
    labels: Tensor | None = None
    """The n class indices; None if the targets were not encoded from class indices."""
    weights: Tensor | None = None
    """The n sample weights, or None if all are equal. Their mean over all samples is 1, so that the risk of a
    mini-batch is unbiased."""

    def __len__(self) -> int:
        return self.X.shape[0]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Samples:
        labels = None if self.labels is None else self.labels.to(device)
        weights = None if self.weights is None else self.weights.to(device, dtype)
        return Samples(self.X.to(device, dtype), self.y.to(device, dtype), labels, weights)

    def take_rows(self, rows: Tensor) -> Samples:
        """Return the samples in the given rows."""
        labels = None if self.labels is None else self.labels[rows]
        weights = None if self.weights is None else self.weights[rows]
        return Samples(self.X[rows], self.y[..., rows], labels, weights)

    def with_weights(self, sample_weight: Any) -> Samples:
        """Return the same samples with new weights, which are scaled to mean 1; None makes all weights equal."""
        if sample_weight is None:
            return replace(self, weights=None)
        weights = as_tensor("sample_weight", sample_weight).to(self.X.device, self.X.dtype)
        if weights.shape != (len(self),):
            problem = f"sample_weight has the shape {tuple(weights.shape)}, but X has {counted(len(self), 'row')}"
            raise InputError(problem, "give one number per sample")
        if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()) or not bool((weights > 0).any()):
            problem = "sample_weight must contain finite numbers >= 0 that are not all 0"
            raise InputError(problem, "replace negative, infinite and NaN weights; give at least one weight > 0")
        return replace(self, weights=weights / weights.mean())


def as_tensor(name: str, values: Any) -> Tensor:
    """Convert an array-like of numbers to a tensor; raise InputError for anything else."""
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.array(values, order="C")
        return torch.from_numpy(array.astype(np.float64) if array.dtype == object else array)
    except (TypeError, ValueError) as error:
        remedy = "encode the classes as 0 .. C-1" if name == "y" else "give an array of numbers"
        raise InputError(f"{name} is not an array of numbers", remedy) from error


def make_features(X: Any) -> Tensor:
    """Return the features as an n x n_x tensor in float32 or float64; integers become float64."""
    features = as_tensor("X", X)
    if features.dtype not in (torch.float32, torch.float64):
        features = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features.double()
    if features.ndim != 2 or len(features) == 0:
        raise InputError(f"X has the shape {tuple(features.shape)}", "give a matrix with one row per sample")
    if not bool(torch.isfinite(features).all()):
        row = int((~torch.isfinite(features)).any(dim=1).nonzero()[0])
        raise InputError(f"row {row} of X contains a number that is not finite", "remove or replace such numbers")
    return features


def make_samples(X: Tensor, y: Tensor, labels: Tensor | None = None, sample_weight: Any = None) -> Samples:
    """Return samples in the precision of X.

    X has the shape (n, n_x), y has the shape (n,) or (C, n), and labels and weights have the shape (n,).
    """
    targets = y.to(X.device, X.dtype)
    return Samples(X, targets, None if labels is None else labels.to(X.device)).with_weights(sample_weight)


def hold_out(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Return three quarters of the samples for training and one quarter for validation, stratified by class."""
    order = _stratified_order(samples, seed)
    held = torch.zeros(len(samples), dtype=torch.bool)
    held[order[1::4]] = True
    training = samples.take_rows((~held).nonzero()[:, 0])
    # The training weights are rescaled to mean 1; otherwise, they would change the step size.
    return training.with_weights(training.weights), samples.take_rows(held.nonzero()[:, 0])


def limit_rows(samples: Samples, most: int | None, seed: int) -> Samples:
    """Return a random sample of at most ``most`` rows, in their original order and stratified by class."""
    n = len(samples)
    if most is None or n <= most:
        return samples
    places = torch.arange(most) * n // most
    limited = samples.take_rows(_stratified_order(samples, seed)[places].sort().values)
    return limited.with_weights(limited.weights)


def _stratified_order(samples: Samples, seed: int) -> torch.Tensor:
    """Return the row indices in random order, grouped by class, so that evenly spaced entries are stratified."""
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))
    return order if samples.labels is None else order[torch.argsort(samples.labels[order], stable=True)]
