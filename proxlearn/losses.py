"""Losses l(y, f) for a Risk; all of them are convex in the output f.

``quadratic`` (y - f)^2 is the paper's; ``logistic`` is for two classes, -1 and +1; ``cross_entropy`` is for C classes
and a neuron with C outputs; ``huber`` is for regression with outliers, and ``Huber(delta)`` sets its threshold. A loss
of one's own is a subclass of ``Loss`` that defines ``value(f, y)``. A Risk and the estimators take such an object;
``register`` gives it a name, by which ``train`` finds it. A package adds a loss to every process by an entry point of
the group ``proxlearn.losses``.

Examples
--------
>>> import torch, proxlearn as pl
>>> pl.losses.logistic.value(torch.tensor([0.0]), torch.tensor([1.0]))
tensor([0.6931])
>>> pl.losses.Huber(delta=2.0).derivative(torch.tensor([5.0]), torch.tensor([0.0]))
tensor([2.])
"""

from __future__ import annotations

from collections.abc import Callable

from proxlearn.core.losses import LOSSES, Huber, Loss, cross_entropy, huber, logistic, quadratic

__all__ = ["Huber", "Loss", "cross_entropy", "huber", "logistic", "quadratic", "register", "unregister"]


def register(name: str, loss: Loss | Callable[[], Loss]) -> None:
    """Give a loss a name in this process: ``loss=NAME`` of ``train``, of a Risk and of the estimators.

    A run folder stores the name. To continue such a run, or to predict with it, register the loss again first. A name
    that exists is refused.

    Parameters
    ----------
    name : str
        A word of letters, digits and . + - _.
    loss : Loss, or a class or function without arguments that returns one

    Examples
    --------
    >>> import proxlearn as pl
    >>> class Absolute(pl.losses.Loss):
    ...     name = "absolute"
    ...     tasks = ("regression",)
    ...     def value(self, f, y):
    ...         distances = (f - y).abs()
    ...         return distances.sum(0) if f.ndim == 2 else distances
    >>> pl.losses.register("absolute", Absolute)
    >>> numbers = ("N=20", "steps=10", "beta=1e4", "h=0.1", "epsilon=1", "init_scale=1")
    >>> run = pl.train("dataset=sine", "recipe=tuned", "loss=absolute", *numbers, verbose=False, plots=False)
    >>> run.step, run.config["loss"]
    (10, 'absolute')
    >>> pl.losses.unregister("absolute")
    """
    LOSSES.register(name, loss)


def unregister(name: str) -> None:
    """Remove the name of a loss that ``register`` has given."""
    LOSSES.unregister(name)
