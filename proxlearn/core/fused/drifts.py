"""The selection of the code that moves the particles: compiled passes if the neuron has them, otherwise torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.functionals.functional import Functional, Potentials
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
from proxlearn.core.neurons.neuron import Response
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.tiled_response import respond
from proxlearn.core.noise import euler_maruyama
from proxlearn.core.samples import Samples

IN_ONE_PIECE = 2**26
"""Size in bytes up to which P is stored as a whole; for a larger P, memory traffic takes longer than the arithmetic."""


class Drift(Protocol):
    """A callable that moves a cloud and evaluates the potential w of the proximal step."""

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]: ...

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        """Return P^T rho and P^T 1 for particles that may be a part of a cloud; see ``FusedDrift.forward``."""

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        """Return Theta_k and w for the particles of the previous call of ``forward``; see ``FusedDrift.backward``."""

    def release(self) -> None:
        """Free the memory of the last step; see ``FusedDrift.release``."""

    def set_hyper(self, hyper: Hyper) -> None: ...

    def set_samples(self, samples: Samples) -> None: ...


class PlainDrift:
    """The drift of any functional, computed by torch, for use with the compiled proximal step."""

    def __init__(self, functional: Functional, hyper: Hyper) -> None:
        self.functional, self.hyper = functional, hyper
        self._response: Response | None = None

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        return self._move(theta, noise, self.functional.potentials(theta, torch.from_numpy(rho), self.hyper))

    def forward(self, theta: Tensor, rho: np.ndarray) -> np.ndarray:
        risk = self._risk
        self._response = respond(risk.neuron, theta, risk.samples)
        sums = risk.particle_sums(self._response, torch.from_numpy(rho), self.hyper)
        return sums.expand(2, -1).contiguous().numpy()

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        assert self._response is not None, "forward must be called before backward"
        sums, weights = torch.from_numpy(np.stack((r, s))), torch.from_numpy(rho)
        potentials = self._risk.potentials_of_response(self._response, theta, weights, sums, self.hyper)
        self.release()
        return self._move(theta, noise, potentials)

    def release(self) -> None:
        self._response = None

    def _move(self, theta: Tensor, noise: Tensor, potentials: Potentials) -> tuple[Tensor, np.ndarray]:
        return euler_maruyama(theta, potentials.gradient, self.hyper, noise), potentials.w.numpy()

    @property
    def _risk(self) -> Risk:
        assert isinstance(self.functional, Risk), "only a risk has samples"
        return self.functional

    def set_hyper(self, hyper: Hyper) -> None:
        self.hyper = hyper

    def set_samples(self, samples: Samples) -> None:
        self.functional = self._risk.with_samples(samples, self._risk.batch)


class ConfinedDrift:
    """A compiled drift to which the confinement of the parameters is added in one pass over theta."""

    def __init__(self, drift: FusedDrift, strengths: Tensor) -> None:
        self.drift, self.strengths = drift, strengths
        self.set_hyper, self.set_samples = drift.set_hyper, drift.set_samples
        self.forward, self.release = drift.forward, drift.release

    def __call__(self, theta: Tensor, rho: np.ndarray, noise: Tensor) -> tuple[Tensor, np.ndarray]:
        r, s = self.forward(theta, rho)
        return self.backward(theta, rho, noise, r, s)

    def backward(
        self, theta: Tensor, rho: np.ndarray, noise: Tensor, r: np.ndarray, s: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        new, w = self.drift.backward(theta, rho, noise, r, s)
        new.addcmul_(theta, self.strengths, value=-float(self.drift.h))
        confining = (theta.square() @ self.strengths / 2).numpy()
        return new, w + confining


DriftClass = Callable[[Risk, Hyper, int, int], FusedDrift]
"""The constructor of a drift, given a risk, hyperparameters, a number of particles and a number of blocks per pass."""


def _tanh(risk: Risk, N: int) -> DriftClass:
    if saturates(risk):
        return SaturatedTanhDrift
    if N * risk.samples.y.nbytes > IN_ONE_PIECE:
        return TiledTanhDrift
    return OneFeatureTanhDrift if risk.samples.X.shape[1] == 1 else TanhDrift


def _softmax(risk: Risk, N: int) -> DriftClass:
    return BinaryFeaturesDrift if is_applicable(risk, N) else SoftmaxDrift


FUSED_DRIFTS: dict[str, Callable[[Risk, int], DriftClass]] = {
    "tanh": _tanh,
    "softmax": _softmax,
    "softmax_intercept": _softmax,
    "tanh_outputs": lambda risk, N: TanhOutputsDrift,
}
"""Functions that choose the compiled drift for N particles, by the name of the neuron."""


def has_fused_drift(functional: Functional) -> bool:
    """Return whether a functional is a risk whose neuron has compiled passes."""
    if not isinstance(functional, Risk) or functional.neuron.name not in FUSED_DRIFTS:
        return False
    neuron = functional.neuron
    return not isinstance(neuron, Perceptron) or neuron.activation.name == "tanh"


def make_drift(functional: Functional, hyper: Hyper, N: int, blocks: int, part: int | None = None) -> Drift:
    """Return the fastest drift for a functional on the CPU, for N particles or for ``part`` of them.

    The kind of drift depends on N, so that all parts of a cloud use the same kind.
    """
    if not has_fused_drift(functional):
        return PlainDrift(functional, hyper)
    assert isinstance(functional, Risk)
    functional.check_readings(hyper)
    drift = FUSED_DRIFTS[functional.neuron.name](functional, N)(functional, hyper, part or N, blocks)
    return drift if functional.strengths is None else ConfinedDrift(drift, functional.strengths)
