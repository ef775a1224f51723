"""The tanh neuron with several outputs, in closed form: one hidden unit for all classes or real targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proxlearn.core.options import Task
from proxlearn.core.samples import Samples


@dataclass(frozen=True)
class TanhOutputsNeuron:
    """Phi(x, theta) = a tanh(<w, x> + b) with a in R^C, theta = (a, b, w): regressed on one-hot or real targets.

    The recursion has one output per sample. Here every pair of an output c and a sample m counts as one of C n samples,
    so that P(i, (c,m)) = a_ic T(i,m); the risk is the mean over the n samples of the squared distance in R^C.
    """

    count: int
    name: ClassVar[str] = "tanh_outputs"
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass", "regression")

    def targets(self, labels: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(labels, self.count).T.double().contiguous()

    def coordinates(self, n_x: int) -> dict[str, int]:
        return {"a": self.count, "b": 1, "w": n_x}

    def phi(self, theta: Tensor, samples: Samples) -> Tensor:
        return self.outputs(theta, samples.X).flatten(1)

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        return theta[:, : self.count, None] * self._tanh(theta, X)[:, None]

    def respond(self, theta: Tensor, samples: Samples) -> TanhOutputsResponse:
        return TanhOutputsResponse(theta[:, : self.count], self._tanh(theta, samples.X), samples.X)

    def _tanh(self, theta: Tensor, X: Tensor) -> Tensor:
        b, w = theta[:, self.count : self.count + 1], theta[:, self.count + 1 :]
        return torch.tanh(torch.addmm(b, w, X.T))


class TanhOutputsResponse:
    """P = a (x) T: products go through T, N x n, so that P, C times as large, is not formed."""

    def __init__(self, a: Tensor, T: Tensor, X: Tensor) -> None:
        self.a, self.T, self.X = a, T, X

    def over_particles(self, weights: Tensor) -> Tensor:
        columns = [((self.a * column[:, None]).T @ self.T).flatten() for column in weights.unbind(1)]
        return torch.stack(columns, dim=1)

    def over_samples(self, vectors: Tensor) -> Tensor:
        return torch.stack([(self.a * self._inner(column)).sum(1) for column in vectors.unbind(1)], dim=1)

    def pull_back(self, c: Tensor, rho: Tensor | None = None, d: Tensor | None = None) -> Tensor:
        # d/da_c = sum_m G_c T;  with g = sum_c a_c G_c: d/db = sum_m g S, d/dw = sum_m g S x_m, S = 1 - T o T.
        grad_a, g = self._inner(c), self.a @ self._by_output(c)
        if rho is not None and d is not None:
            grad_a = grad_a + rho[:, None] * self._inner(d)
            g = g + rho[:, None] * (self.a @ self._by_output(d))
        gS = g * (1 - self.T * self.T)
        return torch.cat((grad_a, gS.sum(1, keepdim=True), gS @ self.X), dim=1)

    def _by_output(self, vector: Tensor) -> Tensor:
        """Return a vector of length C n as a C x n matrix."""
        return vector.view(self.a.shape[1], self.T.shape[1])

    def _inner(self, vector: Tensor) -> Tensor:
        """Return the inner products of each particle's row of T with the vector's part for each output: N x C."""
        return self.T @ self._by_output(vector).T
