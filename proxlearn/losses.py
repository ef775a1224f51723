"""Losses l(y, f) for a Risk; all of them are convex in the output f.

``quadratic``, (y - f)^2, is the paper's loss; ``logistic`` is for two classes, -1 and +1; ``cross_entropy`` is for C
classes and a neuron with C outputs; ``huber`` is for regression with outliers, and ``Huber(delta)`` sets its threshold.
A user-defined loss is a subclass of ``Loss`` that defines ``value(f, y)``; ``check`` finds errors in it. A Risk and the
estimators accept such an object; ``register`` gives it a name that ``train`` accepts. An installed package can provide
a loss through an entry point of the group ``proxlearn.losses``.

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
from typing import Any, get_args

from proxlearn.core import options
from proxlearn.core.losses import LOSSES, Huber, Loss, cross_entropy, huber, logistic, quadratic
from proxlearn.core.part_checks import as_loss, check_properties
from proxlearn.core.targets import check_targets
from proxlearn.errors import InputError

__all__ = ["Huber", "Loss", "check", "cross_entropy", "huber", "logistic", "quadratic", "register", "unregister"]


def check(loss: Loss | str, task: options.Task | None = None, y: Any = None) -> None:
    """Check that a loss has the properties that a fit needs; raise an InputError that names the first missing property.

    The loss is evaluated at several thousand outputs. The check finds a ``derivative`` that is not the derivative of
    ``value``, a ``value`` that is not convex in the output or has no lower bound, wrong shapes, a ``smoothness`` below
    the second derivative, and ``probabilities`` that do not sum to 1 or do not prefer the predicted class. A fit itself
    checks only the shapes and the sums of the probabilities.

    Parameters
    ----------
    loss : Loss or str
        The loss, or its name.
    task : {"binary", "multiclass", "regression"}, optional
        The task for which the loss is checked; by default, all tasks of ``loss.tasks``. Outputs and targets have the
        shape (n,), or (3, n) for "multiclass".
    y : array-like, shape (n,), optional
        Targets for the task "regression", if the loss accepts only some targets or depends on their scale. By default,
        the targets are drawn from a standard normal distribution.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> pl.losses.check(pl.losses.Huber(delta=0.3))
    >>> class Cauchy(pl.losses.Loss):
    ...     name = "cauchy"
    ...     tasks = ("regression",)
    ...     def value(self, f, y):
    ...         return torch.log1p((f - y).square())
    >>> pl.losses.check(Cauchy())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    proxlearn.errors.InputError: the loss `cauchy` is not convex in f: for y = ...
    """
    loss = as_loss(loss)
    all_tasks = get_args(options.Task)
    if isinstance(loss.tasks, str) or not loss.tasks or not set(loss.tasks) <= set(all_tasks):
        problem = f"`tasks` of the loss `{loss.name}` is {loss.tasks!r:.100}"
        raise InputError(problem, f"give a tuple of {', '.join(map(repr, all_tasks))}")
    if task is not None and task not in loss.tasks:
        problem = f"the loss `{loss.name}` does not support the task {task!r:.100}"
        raise InputError(problem, f"choose from {', '.join(map(repr, loss.tasks))}, or add the task to its `tasks`")
    targets = None if y is None else check_targets(y, len(y))
    if targets is not None and targets.ndim != 1:
        raise InputError(f"y has the shape {tuple(targets.shape)}", "give one target per sample")
    for name in loss.tasks if task is None else (task,):
        check_properties(loss, name, targets)


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
