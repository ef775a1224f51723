"""The selection of the code that moves the particles: compiled passes if the neuron has them, otherwise plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.functionals.functional import Functional
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.drift_base import FusedDrift
from proxlearn.core.fused.softmax_binary_features import BinaryFeaturesDrift, is_applicable
from proxlearn.core.fused.softmax_drift import SoftmaxDrift
from proxlearn.core.fused.tanh_drift import TanhDrift
from proxlearn.core.fused.tanh_one_feature import OneFeatureTanhDrift
from proxlearn.core.fused.tanh_outputs_drift import TanhOutputsDrift
from proxlearn.core.fused.tanh_saturated import SaturatedTanhDrift, saturates
from proxlearn.core.fused.tanh_tiled import TiledTanhDrift
from proxlearn.core.hyper import Hyper
from proxlearn.core.motion import euler_maruyama
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples

IN_ONE_PIECE = 2**26
"""Size in bytes up to which P is stored as a whole; for a larger P, memory traffic takes longer than the arithmetic."""


class Drift(Protocol):
    """A callable that moves a cloud and evaluates the potential w of the proximal step."""

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]: ...

    def set_hyper(self, hyper: Hyper) -> None: ...

    def set_samples(self, samples: Samples) -> None: ...


class PlainDrift:
    """The drift of any functional in plain torch, for use with the compiled proximal step."""

    def __init__(self, functional: Functional, hyper: Hyper) -> None:
        self.functional, self.hyper = functional, hyper

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        potentials = self.functional.potentials(theta, torch.from_numpy(rho), self.hyper)
        return euler_maruyama(theta, potentials.gradient, self.hyper, noise), potentials.w.numpy()

    def set_hyper(self, hyper: Hyper) -> None:
        self.hyper = hyper

    def set_samples(self, samples: Samples) -> None:
        assert isinstance(self.functional, Risk), "an energy has no samples"
        self.functional = self.functional.with_samples(samples, self.functional.batch)


class ConfinedDrift:
    """A compiled drift to which the confinement of the parameters is added in one pass over theta."""

    def __init__(self, drift: FusedDrift, strengths: Tensor) -> None:
        self.drift, self.strengths = drift, strengths
        self.set_hyper, self.set_samples = drift.set_hyper, drift.set_samples

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        new, w = self.drift(theta, rho, noise)
        new.addcmul_(theta, self.strengths, value=-float(self.drift.h))
        confining = (theta.square() @ self.strengths / 2).numpy()
        return new, w + confining


def _tanh(risk: Risk, hyper: Hyper, N: int, blocks: int) -> FusedDrift:
    if saturates(risk):
        return SaturatedTanhDrift(risk, hyper, N, blocks)
    whole = N * risk.samples.y.nbytes <= IN_ONE_PIECE
    if whole and risk.samples.X.shape[1] == 1:
        return OneFeatureTanhDrift(risk, hyper, N, blocks)
    return (TanhDrift if whole else TiledTanhDrift)(risk, hyper, N, blocks)


def _softmax(risk: Risk, hyper: Hyper, N: int, blocks: int) -> FusedDrift:
    return (BinaryFeaturesDrift if is_applicable(risk, N) else SoftmaxDrift)(risk, hyper, N, blocks)


FUSED_DRIFTS: dict[str, Callable[[Risk, Hyper, int, int], FusedDrift]] = {
    "tanh": _tanh,
    "softmax": _softmax,
    "softmax_intercept": _softmax,
    "tanh_outputs": TanhOutputsDrift,
}
"""Compiled drifts by the name of the neuron."""


def has_fused_drift(functional: Functional) -> bool:
    """Return whether the neuron of a risk has compiled passes."""
    if not isinstance(functional, Risk) or functional.neuron.name not in FUSED_DRIFTS:
        return False
    neuron = functional.neuron
    return not isinstance(neuron, Perceptron) or neuron.activation.name == "tanh"


def make_drift(functional: Functional, hyper: Hyper, N: int, blocks: int) -> Drift:
    """Return the fastest drift for a functional on the CPU."""
    if not has_fused_drift(functional):
        return PlainDrift(functional, hyper)
    assert isinstance(functional, Risk)
    functional.check_readings(hyper)
    drift = FUSED_DRIFTS[functional.neuron.name](functional, hyper, N, blocks)
    return drift if functional.strengths is None else ConfinedDrift(drift, functional.strengths)
