"""The tanh neuron, in closed form: one real output, the paper's neuron for binary labels and regression."""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.core.options import Task
from proxlearn.core.samples import Samples


class TanhNeuron:
    """Phi(x, theta) = a tanh(<w, x> + b), theta = (a, b, w): the paper's neuron for one real output."""

    name = "tanh"
    tasks: tuple[Task, ...] = ("binary", "regression")

    def targets(self, labels: Tensor) -> Tensor:
        return 2.0 * labels.double() - 1.0

    def coordinates(self, n_x: int) -> dict[str, int]:
        return {"a": 1, "b": 1, "w": n_x}

    def phi(self, theta: Tensor, samples: Samples) -> Tensor:
        return self.outputs(theta, samples.X)[:, 0]

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        return (theta[:, :1] * self._tanh(theta, X))[:, None]

    def respond(self, theta: Tensor, samples: Samples) -> TanhResponse:
        return TanhResponse(theta[:, :1], self._tanh(theta, samples.X), samples.X)

    @staticmethod
    def _tanh(theta: Tensor, X: Tensor) -> Tensor:
        return torch.tanh(torch.addmm(theta[:, 1:2], theta[:, 2:], X.T))


class TanhResponse:
    """P = a o T with T = tanh(...): products go through T, so P is not formed."""

    def __init__(self, a: Tensor, T: Tensor, X: Tensor) -> None:
        self.a, self.T, self.X = a, T, X

    def over_particles(self, weights: Tensor) -> Tensor:
        return self.T.T @ (self.a * weights)

    def over_samples(self, vectors: Tensor) -> Tensor:
        return self.a * (self.T @ vectors)

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        # d/da = sum_m G T;  d/db = a sum_m G S;  d/dw = a sum_m G S x_m, with S = 1 - T o T.
        if rho is None or d is None:
            grad_a = self.T @ c[:, None]
            G = c
        else:
            inner = self.T @ torch.stack((c, d), dim=1)
            grad_a = inner[:, :1] + rho[:, None] * inner[:, 1:]
            G = torch.addcmul(c, rho[:, None], d)
        GS = G * (1 - self.T * self.T)
        return torch.cat((grad_a, self.a * GS.sum(1, keepdim=True), self.a * (GS @ self.X)), dim=1)
