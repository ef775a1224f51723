"""The losses l(y, f) of the risk F(rho) = (1/n) sum_m l(y_m, f_m), with their derivatives; all losses are convex in f.

A loss enters a recursion only through c_m = l'(y_m, f_m) / n, one number per sample and output, so every neuron and
every compiled function works with every loss. A loss that defines only its value is differentiated automatically; the
losses in this module define the derivative in closed form, and tests compare it with automatic differentiation.

Outputs f and targets y have the same shape: (n,) for one output and (C, n) for C outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor

from proxlearn.core.options import Task
from proxlearn.core.registry import LOSS_GROUP, Registry
from proxlearn.errors import InputError

__all__ = ["LOSSES", "CrossEntropy", "Huber", "Logistic", "Loss", "Quadratic", "cross_entropy", "huber", "logistic",
           "quadratic"]  # fmt: skip


class Loss(ABC):
    """A loss that is convex in the output f.

    Subclasses define ``value``; ``derivative`` uses automatic differentiation unless it is overridden. The recursion
    uses a loss through its derivative in equation :eq:`first-variation` in :doc:`/theory/mean_field`.

    Examples
    --------
    The absolute error, which is minimised by the median. It is summed over the outputs, not over the samples:

    >>> import torch, proxlearn as pl
    >>> class Absolute(pl.losses.Loss):
    ...     name = "absolute"
    ...     def value(self, f, y):
    ...         distances = (f - y).abs()
    ...         return distances.sum(0) if f.ndim == 2 else distances
    >>> Absolute().derivative(torch.tensor([1.0, -2.0]), torch.zeros(2))
    tensor([ 1., -1.])
    >>> Absolute().value(torch.ones(3, 2), torch.zeros(3, 2))
    tensor([3., 3.])
    """

    name: ClassVar[str] = "custom"
    """Name in configs, files and messages; the names of proxlearn's own losses cannot be reused."""
    tasks: ClassVar[tuple[Task, ...]] = ("binary", "multiclass", "regression")
    """The tasks that the loss supports, out of "binary" (two classes, one output), "multiclass" (one output per class)
    and "regression". Estimators and configs reject other tasks. If "regression" is missing, the targets of a single
    output are two classes, and 0 and 1 are converted to -1 and +1.
    """
    smoothness: ClassVar[float] = 2.0
    """Upper bound on the second derivative with respect to f. In a selection (estimators, recipe=tuned), the candidates
    for the step size h are proportional to the reciprocal of this bound, so that they are comparable between losses;
    the reference is 2, the bound of the quadratic loss. ``iterate`` does not use the bound.
    """
    estimates_centre: ClassVar[bool] = False
    """Whether the minimiser of the expected loss is the centre of the targets, that is, their mean or a point near
    it. If not, ``predict_interval`` warns that its intervals, which are centred on the prediction, may be wrong.
    """

    @abstractmethod
    def value(self, f: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample.

        Parameters
        ----------
        f : Tensor, shape (n,) or (C, n)
            Outputs of the network.
        y : Tensor, same shape
            Targets: real numbers, -1 and +1 for two classes, or one-hot columns for C classes.

        Returns
        -------
        Tensor, shape (n,)
            One number per sample, summed over the C outputs; it must not be averaged over the samples. A Risk checks
            the shape.
        """

    def derivative(self, f: Tensor, y: Tensor) -> Tensor:
        """Return the derivative of the value with respect to ``f``, in the shape of ``f``.

        Parameters
        ----------
        f : Tensor, shape (n,) or (C, n)
            Outputs of the network.
        y : Tensor, same shape
            Targets.

        Returns
        -------
        Tensor, in the shape of ``f``
        """
        f = f.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.value(f, y).sum(), f)
        return slope

    def mean(self, f: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss over the samples, a scalar.

        Parameters
        ----------
        f : Tensor, shape (n,) or (C, n)
            Outputs of the network.
        y : Tensor, same shape
            Targets.

        Returns
        -------
        Tensor, a scalar
        """
        return self.value(f, y).mean()

    def cotangent(self, f: Tensor, y: Tensor) -> Tensor:
        """Return c_m = l'(y_m, f_m) / n, the only quantity of the loss that the gradient of the risk needs.

        Parameters
        ----------
        f : Tensor, shape (n,) or (C, n)
            Outputs of the network.
        y : Tensor, same shape
            Targets.

        Returns
        -------
        Tensor, in the shape of ``f``
        """
        return self.derivative(f, y) / y.shape[-1]

    def probabilities(self, f: Tensor) -> Tensor | None:
        """Return class probabilities (C x n, float64) for the mean outputs f (C x n, or 1 x n for two classes).

        If the loss defines no probabilities, the result is None, and the class probabilities are those of the quadratic
        loss without a link: (1 + f) / 2 for two classes, or the positive parts of f divided by their sum.

        Parameters
        ----------
        f : Tensor, shape (C, n), or (1, n) for two classes
            Mean outputs of the network.

        Returns
        -------
        Tensor, shape (C, n), or None
            Probabilities in float64; each column sums to 1.
        """
        return None

    def __repr__(self) -> str:
        return f"<loss {self.name}>"


@dataclass(frozen=True)
class Quadratic(Loss):
    """The paper's loss (y - f)^2, summed over the outputs.

    It defines no probabilities by itself. With a ``link_slope`` s, which selection fits to held-out rows, the
    class probabilities are 1 / (1 + exp(-s f)) for two classes and softmax(s f) for more.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> pl.losses.quadratic.value(torch.tensor([1.0, 3.0]), torch.zeros(2))
    tensor([1., 9.])
    """

    link_slope: float | None = None
    name: ClassVar[str] = "quadratic"
    tasks: ClassVar[tuple[Task, ...]] = ("binary", "multiclass", "regression")
    estimates_centre: ClassVar[bool] = True

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return _sum_outputs((y - f).square())

    def derivative(self, f: Tensor, y: Tensor) -> Tensor:
        return 2 * (f - y)

    def mean(self, f: Tensor, y: Tensor) -> Tensor:
        # This method and ``cotangent`` keep the order of operations of version 0.1, so that the results stay the same.
        mean = (y - f).square().mean()
        return mean * len(y) if y.ndim == 2 else mean

    def cotangent(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y) * (2 / y.shape[-1])

    def probabilities(self, f: Tensor) -> Tensor | None:
        if self.link_slope is None:
            return None
        return (logistic if len(f) == 1 else cross_entropy).probabilities(self.link_slope * f.double())


@dataclass(frozen=True, repr=False)
class Logistic(Loss):
    """The loss log(1 + exp(-y f)) for y = -1, +1; the probability of the second class is 1 / (1 + exp(-f)).

    With a ``link_slope`` s, which selection fits to held-out rows, the probability is 1 / (1 + exp(-s f)).

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> pl.losses.logistic.probabilities(torch.zeros(1, 1)).tolist()
    [[0.5], [0.5]]
    """

    link_slope: float | None = None
    name: ClassVar[str] = "logistic"
    tasks: ClassVar[tuple[Task, ...]] = ("binary",)
    smoothness: ClassVar[float] = 0.25

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        # logsigmoid is finite for every finite argument, whereas exp overflows above 88 (float32) or 709 (float64).
        return -torch.nn.functional.logsigmoid(y * f)

    def derivative(self, f: Tensor, y: Tensor) -> Tensor:
        return -y * torch.sigmoid(-y * f)

    def probabilities(self, f: Tensor) -> Tensor:
        scaled = f[0].double() * (self.link_slope or 1.0)
        return torch.stack((torch.sigmoid(-scaled), torch.sigmoid(scaled)))


@dataclass(frozen=True, repr=False)
class CrossEntropy(Loss):
    """The loss logsumexp(f) - f_y for C outputs; the class probabilities are softmax(f).

    With a ``link_slope`` s, which selection fits to held-out rows, the probabilities are softmax(s f).

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> one_hot = torch.tensor([[1.0], [0.0]])
    >>> pl.losses.cross_entropy.value(torch.zeros(2, 1), one_hot)
    tensor([0.6931])
    """

    link_slope: float | None = None
    name: ClassVar[str] = "cross_entropy"
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)
    smoothness: ClassVar[float] = 0.5

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        # The largest output is subtracted first: the difference of two outputs near 1e30 is exact, but their
        # exponentials overflow.
        shifted = f - f.amax(dim=0)
        return torch.logsumexp(shifted, dim=0) - (y * shifted).sum(dim=0)

    def derivative(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(f, dim=0) - y

    def probabilities(self, f: Tensor) -> Tensor:
        return torch.softmax(f.double() * (self.link_slope or 1.0), dim=0)


@dataclass(frozen=True)
class Huber(Loss):
    """The Huber loss, for regression with outliers.

    With r = f - y, the loss is r^2 / 2 if abs(r) <= delta, and delta (abs(r) - delta / 2) otherwise.

    Parameters
    ----------
    delta : float, default=1.0
        Threshold > 0 between the quadratic and the linear part, in the units of y.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> pl.losses.Huber(delta=2.0).value(torch.tensor([1.0, 5.0]), torch.zeros(2))
    tensor([0.5000, 8.0000])
    """

    delta: float = 1.0
    name: ClassVar[str] = "huber"
    tasks: ClassVar[tuple[Task, ...]] = ("regression",)
    smoothness: ClassVar[float] = 1.0
    estimates_centre: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.delta, bool) or not isinstance(self.delta, Real) or not 0 < self.delta < math.inf:
            problem = f"delta of the Huber loss must be a finite number > 0, got {self.delta!r}"
            raise InputError(problem, "give a positive threshold in the units of y")

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        distance = (f - y).abs()
        inside = distance.clamp_max(self.delta)
        # inside^2/2 + delta (distance - inside) covers both cases in one formula, without squaring a large distance.
        return _sum_outputs(inside.square() / 2 + self.delta * (distance - inside))

    def derivative(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y).clamp(-self.delta, self.delta)


def _sum_outputs(values: Tensor) -> Tensor:
    return values.sum(dim=0) if values.ndim == 2 else values


quadratic = Quadratic()
logistic = Logistic()
cross_entropy = CrossEntropy()
huber = Huber()

LOSSES: Registry[Callable[[], Loss] | Loss] = Registry(
    "loss",
    LOSS_GROUP,
    {
        "quadratic": Quadratic,
        "logistic": Logistic,
        "cross_entropy": CrossEntropy,
        "huber": Huber,
    },
    "a Loss, or a function without arguments that returns one",
    lambda part: isinstance(part, Loss) or callable(part),
)
"""Losses by their name in a config.

An entry point of the group ``proxlearn.losses`` is a Loss, or a class or function that returns one."""


RECOMMENDED_LOSSES: dict[Task, str] = {
    "binary": "logistic",
    "multiclass": "cross_entropy",
    "regression": "quadratic",
}
"""The default loss of each task, which is used if the config sets no loss (loss=null)."""


def recommended_loss(task: Task, readings: Iterable[str] = ()) -> str:
    """Return the name of a task's default loss; "quadratic" if a reading (drift or prox_potential) is "paper"."""
    return "quadratic" if "paper" in readings else RECOMMENDED_LOSSES[task]


def with_link(loss: Loss, slope: float | None) -> Loss:
    """Return a loss whose class probabilities use the link slope; a loss without such a slope is returned unchanged."""
    return replace(loss, link_slope=slope) if isinstance(loss, Quadratic | Logistic | CrossEntropy) else loss


def find_loss(name: str | None) -> Loss:
    """Return the loss called ``name``; None, as in files of version 0.1, means the quadratic loss."""
    if name is None:
        return quadratic
    return LOSSES.make(name, Loss)  # type: ignore[type-abstract]
