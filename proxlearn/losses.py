"""Losses l(y, f) for a Risk; all of them are convex in the output f.

``quadratic``, (y - f)^2, is the paper's loss; ``logistic`` is for two classes, -1 and +1; ``cross_entropy`` is for C
classes and a neuron with C outputs; ``huber`` is for regression with outliers, and ``Huber(delta)`` sets its threshold.
A user-defined loss is a subclass of ``Loss`` that defines ``value(f, y)``. A Risk and the estimators accept such an
object; ``register`` gives it a name that ``train`` accepts. An installed package can provide a loss through an entry
point of the group ``proxlearn.losses``.

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
    """Register a loss in this process, so that ``loss=NAME`` selects it in ``train``, a Risk and the estimators.

    A run folder stores only the name. To continue a run with this loss, or to predict with it, in another process,
    register the loss there first. The name of an existing loss cannot be used.

    Parameters
    ----------
    name : str
        Name of the loss, consisting of letters, digits and . + - _.
    loss : Loss or callable
        The loss, or a callable without arguments that returns it.

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
    """Remove a loss that was added by ``register``.

    Parameters
    ----------
    name : str
        Name under which the loss was registered.

    Examples
    --------
    >>> import proxlearn as pl
    >>> pl.losses.register("steep_huber", pl.losses.Huber(delta=0.1))
    >>> pl.losses.unregister("steep_huber")
    """
    LOSSES.unregister(name)
