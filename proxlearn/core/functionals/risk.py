"""The risk of a two-layer network: F(rho) = (1/n) sum_m l(y_m, f_m) + <R, rho>, f_m = sum_i rho_i Phi(x_m, theta_i).

Its potentials cost O(N n n_x): the N x N matrix U of the paper is never formed (the paper's way is O(N^2 n n_x)).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from proxlearn.core.confinement import Confinement, confinement_strengths
from proxlearn.core.functionals.functional import Functional, Potentials
from proxlearn.core.hyper import Hyper, Hyperparameters
from proxlearn.core.losses import Loss, quadratic
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.tiled_response import respond
from proxlearn.core.samples import Samples, as_tensor, make_features, make_samples
from proxlearn.core.targets import check_neuron, count_outputs, make_targets
from proxlearn.errors import InputError

__all__ = ["Risk"]


class Risk(Functional):
    """The mean loss of the network whose hidden units are the particles, plus a confinement of the parameters.

    F(rho) = (1/n) sum_m l(y_m, f_m) + <R, rho>, where f_m = sum_i rho_i Phi(x_m, theta_i) is the network's output.

    Parameters
    ----------
    X : array-like, shape (n, n_x)
        Features, finite numbers. Their precision, float32 or float64, is that of an initial cloud; whole numbers become
        float64. Features are used as they are: standardise them first where their units differ.
    y : array-like, shape (n,) or (n, C)
        Targets: real numbers, or C columns of them for a neuron with C outputs. Classes are whole numbers 0 .. C-1,
        shape (n,), or one-hot rows, for a neuron with C outputs and for the softmax neuron; for
        ``losses.logistic`` they are -1 and +1, or 0 and 1, which are converted to -1 and +1.
    neuron : Neuron, optional
        Phi. By default, it is the paper's neuron a tanh(<w, x> + b), with one output per column of ``y`` or per class.
    loss : Loss, default=losses.quadratic
        l, convex in f.
    confinement : float or Mapping[str, float], default=0.0
        lambda of R(theta) = (lambda / 2) |theta|^2, for all coordinates or per block of theta.
    sample_weight : array-like, shape (n,), optional
        s_m >= 0: the mean loss is sum_m s_m l_m / sum_m s_m.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> x = torch.linspace(-3, 3, 40)
    >>> risk = pl.Risk(x[:, None], torch.sin(x))
    >>> cloud = pl.init(risk, N=100, seed=0)
    >>> cloud.theta.shape
    torch.Size([100, 3])
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        neuron: Neuron | None = None,
        loss: Loss = quadratic,
        confinement: Confinement = 0.0,
        sample_weight: Any = None,
    ) -> None:
        features, given = make_features(X), as_tensor("y", y)
        if neuron is None:
            neuron = Perceptron(num_outputs=count_outputs(given, loss))
        targets, labels = make_targets(given, neuron, loss, len(features))
        samples = make_samples(features, targets, labels, sample_weight)
        check_neuron(neuron, samples)
        self._set(samples, neuron, loss, confinement)

    def _set(self, samples: Samples, neuron: Neuron, loss: Loss, confinement: Confinement, batch: bool = False) -> None:
        self.samples, self.neuron, self.loss, self.confinement = samples, neuron, loss, confinement
        self.batch = batch
        """Whether the samples are a mini-batch, which will be replaced by other samples."""
        strengths = confinement_strengths(confinement, self.blocks)
        self.strengths = None if strengths is None else strengths.to(samples.X.device, samples.X.dtype)

    @classmethod
    def from_samples(
        cls,
        neuron: Neuron,
        samples: Samples,
        loss: Loss = quadratic,
        confinement: Confinement = 0.0,
        batch: bool = False,
    ) -> Self:
        """Return the risk for samples whose targets are already in the form that the neuron requires."""
        risk = cls.__new__(cls)
        risk._set(samples, neuron, loss, confinement, batch)
        return risk

    def with_samples(self, samples: Samples, batch: bool = False) -> Self:
        """Return the same risk for other samples."""
        return self.from_samples(self.neuron, samples, self.loss, self.confinement, batch)

    @property
    def blocks(self) -> Mapping[str, int]:
        return self.neuron.coordinates(self.samples.X.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        return self.samples.X.dtype

    @property
    def has_paper_readings(self) -> bool:
        return self.loss.name == "quadratic"

    def initial_deviations(self, scale: float) -> Mapping[str, float]:
        return self.neuron.initial_deviations(self.samples.X.shape[1], scale)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        return self.with_samples(self.samples.to(device, dtype), self.batch)

    def value(self, theta: Tensor, rho: Tensor) -> Tensor:
        outputs = self.neuron.phi(theta, self.samples).T @ rho
        losses = self.loss.value(outputs.view_as(self.samples.y), self.samples.y)
        mean = losses.mean() if self.samples.weights is None else (losses * self.samples.weights).mean()
        return mean if self.strengths is None else mean + rho @ self.confining(theta)

    def first_variation(self, theta: Tensor, rho: Tensor) -> Tensor:
        response = respond(self.neuron, theta, self.samples)
        f = response.over_particles(rho[:, None])[:, 0]
        return self._with_confinement(theta, response.over_samples(self.cotangent(f)[:, None])[:, 0])

    def potentials(self, theta: Tensor, rho: Tensor, hyper: Hyper) -> Potentials:
        if self.loss.name == "quadratic":
            potentials = self._quadratic_potentials(theta, rho, hyper)
        else:
            response = respond(self.neuron, theta, self.samples)
            c = self.cotangent(response.over_particles(rho[:, None])[:, 0])
            w = response.over_samples(c[:, None])[:, 0]
            potentials = Potentials(w, response.pull_back(c))
        if self.strengths is None:
            return potentials
        w, gradient = potentials.w + self.confining(theta), potentials.gradient + self.strengths * theta
        return Potentials(w, gradient)

    def _quadratic_potentials(self, theta: Tensor, rho: Tensor, hyper: Hyper) -> Potentials:
        """Return the potentials for the quadratic loss, from v = -(2/n) P y and u = U rho = (1/n) P P^T rho."""
        n, y = len(self.samples), self.samples.y.reshape(-1)
        response = respond(self.neuron, theta, self.samples)
        if hyper.drift == "paper":
            # The gradient of sum_k (u_k + v_k), which is what Backward(u + v) computes: theta_i enters u_i directly and
            # every other u_k through U's i-th column, hence the second term, s = P^T 1.
            r, s = response.over_particles(torch.stack((rho, torch.ones_like(rho)), dim=1)).unbind(1)
            gradient = response.pull_back(self._weighted((r - 2 * y) / n), rho, self._weighted(s / n))
        else:
            # The gradient of the first variation v + 2 U rho of F = F0 + <v, rho> + rho^T U rho.
            r = response.over_particles(rho[:, None])[:, 0]
            gradient = response.pull_back(self.cotangent(r))
        inner = response.over_samples(torch.stack((self._weighted(y), self._weighted(r)), dim=1))
        inner_y, inner_r = inner.unbind(1)
        v, u = inner_y * (-2 / n), inner_r / n
        return Potentials(v + u if hyper.prox_potential == "paper" else v + 2 * u, gradient)

    def cotangent(self, f: Tensor) -> Tensor:
        """Return c_m = s_m l'(y_m, f_m) / n for flat outputs f of length n or C n, as a flat tensor of the same
        length."""
        y = self.samples.y
        return self._weighted(self.loss.cotangent(f.view_as(y), y).reshape(-1))

    def _weighted(self, values: Tensor) -> Tensor:
        """Return the values per sample (n or C n) multiplied by the sample weights."""
        weights = self.samples.weights
        return values if weights is None else (values.view(-1, len(weights)) * weights).reshape(-1)

    def confining(self, theta: Tensor) -> Tensor:
        """Return R(theta_i) for every particle, shape (N,)."""
        assert self.strengths is not None
        return theta.square() @ self.strengths / 2

    def _with_confinement(self, theta: Tensor, w: Tensor) -> Tensor:
        return w if self.strengths is None else w + self.confining(theta)

    def check_readings(self, hyper: Hyperparameters[Any]) -> None:
        """Raise InputError if ``hyper`` requests a ``paper`` reading that is not defined for this loss."""
        for option in ("drift", "prox_potential"):
            if self.loss.name != "quadratic" and getattr(hyper, option) == "paper":
                problem = f"{option}=paper is defined for the quadratic loss only, not for {self.loss.name}"
                raise InputError(problem, f"use {option}=first_variation")
