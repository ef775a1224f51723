"""Targets with known results: a Gaussian, and a logistic regression small enough for its Laplace approximation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.baselines.registry import Request

MEAN = (1.0, -2.0)
PRECISION = ((2.0, 0.5), (0.5, 1.0))


@dataclass(frozen=True)
class Gaussian:
    """The potential V(x) = (x - mean)' precision (x - mean) / 2, for which exp(-V / T) is N(mean, T precision^-1)."""

    mean: Tensor
    precision: Tensor

    @property
    def dim(self) -> int:
        return len(self.mean)

    def value(self, x: Tensor) -> Tensor:
        away = x - self.mean
        return ((away @ self.precision) * away).sum(1) / 2

    def gradient(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        return (x - self.mean) @ self.precision

    def data_batch(self, size: int | None, generator: torch.Generator) -> Tensor | None:
        return None


def gaussian(mean: tuple[float, ...] = MEAN, precision: tuple[tuple[float, ...], ...] = PRECISION) -> Gaussian:
    return Gaussian(torch.tensor(mean), torch.tensor(precision))


def implicit_euler(mean: float, std: float, centre: float, kappa: float, h: float, T: float) -> tuple[float, float]:
    """Return one JKO step of N(mean, std^2) for V = kappa (x - centre)^2 / 2.

    The best map is affine; its slope a solves (a - 1) std^2 + h kappa a std^2 = h T / a.
    """
    a = (1 + math.sqrt(1 + 4 * h * T * (1 + h * kappa) / std**2)) / (2 * (1 + h * kappa))
    return (mean + h * kappa * centre) / (1 + h * kappa), a * std


def logistic_rows(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with two correlated features, and labels drawn from a logistic model."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.8]])
    y = np.where(random.random(n) < 1 / (1 + np.exp(-X @ np.array([1.5, -1.0]))), 1.0, -1.0)
    return X, y


def request(seed: int = 0, temperature: float = 1.0) -> Request:
    return Request(dataset="rows", seed=seed, temperature=temperature)
