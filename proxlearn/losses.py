"""Losses l(y, f) for a Risk; all of them are convex in the output f.

``quadratic``, which is (y - f)^2, is the loss of the paper; ``logistic`` is for two classes, -1 and +1;
``cross_entropy`` is for C classes and a neuron with C outputs; ``huber`` is for regression with outliers, and
``Huber(delta)`` sets its threshold. A custom loss is a subclass of ``Loss`` that defines ``value(f, y)``.

Examples
--------
>>> import torch, proxlearn as pl
>>> pl.losses.logistic.value(torch.tensor([0.0]), torch.tensor([1.0]))
tensor([0.6931])
>>> pl.losses.Huber(delta=2.0).derivative(torch.tensor([5.0]), torch.tensor([0.0]))
tensor([2.])
"""

from __future__ import annotations

from proxlearn.core.losses import Huber, Loss, cross_entropy, huber, logistic, quadratic

__all__ = ["Huber", "Loss", "cross_entropy", "huber", "logistic", "quadratic"]
