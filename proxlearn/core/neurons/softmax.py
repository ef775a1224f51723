"""The paper's neuron for several classes, softmax, in closed form: one linear classifier per particle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proxlearn.core.neurons.neuron import Neuron, Response
from proxlearn.core.options import Task
from proxlearn.core.samples import Samples
from proxlearn.validators import whole

__all__ = ["Softmax"]


@dataclass(frozen=True)
class Softmax(Neuron):
    """The neuron Phi(x_m, theta) = softmax(theta x_m)[label_m], the probability of the true class.

    The parameters theta are a C x n_x matrix. The target is y = 1, so the risk is the mean of (1 - f)^2. The paper's
    neuron has no intercept. Features that are not centred need one; then theta = (b, w), and the probabilities are
    softmax(w x + b).

    Parameters
    ----------
    classes : int
        Number of classes C.
    intercept : bool, default=False
        Whether theta contains an intercept for each class.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> neuron = pl.neurons.Softmax(classes=3, intercept=True)
    >>> neuron.coordinates(n_x=2)
    {'b': 3, 'w': 6}
    >>> neuron.outputs(torch.zeros(5, 9), torch.zeros(7, 2)).sum(dim=1).shape
    torch.Size([5, 7])
    """

    classes: int
    intercept: bool = False
    losses: ClassVar[tuple[str, ...]] = ("quadratic",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", whole("the number of classes of a softmax neuron", self.classes, 2))

    @property
    def width(self) -> int:
        return self.classes

    @property
    def tasks(self) -> tuple[Task, ...]:
        return ("multiclass",)

    @property
    def name(self) -> str:
        return "softmax_intercept" if self.intercept else "softmax"

    def targets(self, labels: Tensor) -> Tensor:
        return torch.ones(len(labels), dtype=torch.float64)

    def coordinates(self, n_x: int) -> dict[str, int]:
        w = {"w": self.classes * n_x}
        return {"b": self.classes} | w if self.intercept else w

    def initial_deviations(self, n_x: int, scale: float) -> dict[str, float]:
        w = {"w": scale / math.sqrt(n_x)}
        return {"b": scale} | w if self.intercept else w

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        # The second axis is ordered class by class, so that the logits of a whole cloud are one matrix product.
        if self.intercept:
            b, w = theta[:, : self.classes], theta[:, self.classes :]
            logits = torch.addmm(b.reshape(-1, 1), w.reshape(-1, X.shape[1]), X.T)
        else:
            logits = theta.reshape(-1, X.shape[1]) @ X.T
        return torch.softmax(logits.view(len(theta), self.classes, len(X)), dim=1)

    def phi(self, theta: Tensor, samples: Samples) -> Tensor:
        return _of_label(self.outputs(theta, samples.X), _labels(samples))

    def respond(self, theta: Tensor, samples: Samples) -> SoftmaxResponse:
        return SoftmaxResponse(self.outputs(theta, samples.X), _labels(samples), samples.X, self.intercept)


class SoftmaxResponse(Response):
    """The response P, the probability of each sample's class; the gradient uses the probabilities p of all classes."""

    def __init__(self, p: Tensor, labels: Tensor, X: Tensor, intercept: bool) -> None:
        self.p, self.labels, self.X, self.intercept = p, labels, X, intercept
        self.P = _of_label(p, labels)

    def over_particles(self, weights: Tensor) -> Tensor:
        return self.P.T @ weights

    def over_samples(self, vectors: Tensor) -> Tensor:
        return self.P @ vectors

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        # dP/dlogit_c = p_label (delta_{c,label} - p_c), then one product with X for dlogit/dtheta.
        G = c if rho is None or d is None else torch.addcmul(c, rho[:, None], d)
        GP = (G * self.P)[:, None]
        back = self.p * -GP
        back.scatter_add_(1, self.labels.expand_as(GP), GP)
        N, classes, n = back.shape
        grad_w = (back.view(N * classes, n) @ self.X).view(N, -1)
        return torch.cat((back.sum(2), grad_w), dim=1) if self.intercept else grad_w

    def stored_bytes(self) -> int:
        return self.p.nbytes + self.P.nbytes


def _of_label(p: Tensor, labels: Tensor) -> Tensor:
    """Return the probability (N x n) that each particle assigns to the class of each sample; p is N x C x n."""
    return p.gather(1, labels.expand(len(p), 1, -1))[:, 0]


def _labels(samples: Samples) -> Tensor:
    assert samples.labels is not None, "the softmax neuron needs labelled samples"
    return samples.labels
