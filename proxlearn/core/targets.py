"""The conversion of the user's y to targets: real numbers are kept, and classes are encoded for the neuron."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proxlearn.core.losses import Loss
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.samples import as_tensor
from proxlearn.errors import InputError
from proxlearn.printable_text import counted

__all__ = ["check_targets", "count_outputs", "make_targets"]

ENCODE_LABELS = "encode the classes as 0 .. C-1, for example with np.unique(y, return_inverse=True)[1]"


def check_targets(values: Any, n: int) -> Tensor:
    """Check a user's y and return it as a tensor of finite numbers, shape (n,) or (n, C) with C > 1."""
    y = as_tensor("y", values)
    if y.ndim not in (1, 2) or len(y) != n or not y.numel():
        problem = f"y has the shape {tuple(y.shape)}, but X has {counted(n, 'row')}"
        raise InputError(problem, "give one target, or one row of targets, per sample")
    if not bool(torch.isfinite(y).all()):
        raise InputError("y contains a number that is not finite", "remove or replace such targets")
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def count_outputs(y: Tensor, loss: Loss) -> int:
    """Return the number of outputs that the default neuron needs.

    The result is the number of columns of y. A vector y counts as one column, unless it contains class labels and the
    loss is for classes only, such as cross_entropy; in that case, the result is the number of classes.
    """
    if y.ndim == 2:
        return y.shape[1]
    if "regression" in loss.tasks or "multiclass" not in loss.tasks or not _are_whole(y):
        return 1
    C = int(y.max()) + 1
    if "binary" in loss.tasks and C <= 2:
        return 1
    labels = torch.unique(y)
    if int(labels[0]) >= 0 and len(labels) < C:
        absent = next(label for label in range(C) if label >= len(labels) or int(labels[label]) != label)
        problem = f"y contains labels up to {C - 1} but no sample of class {absent}"
        raise InputError(problem, f"{ENCODE_LABELS}, or give a neuron with outputs={C}")
    return max(2, C)


def make_targets(y: Tensor, neuron: Neuron, loss: Loss) -> tuple[Tensor, Tensor | None]:
    """Return the targets for a neuron's outputs, shape (n,) or (C, n), and the class labels, shape (n,), or None.

    The labels are returned for a softmax neuron, and for a vector y with several outputs; otherwise, they are None.

    Parameters
    ----------
    y : Tensor, shape (n,) or (n, C)
        The result of ``check_targets``.
    neuron, loss
        The neuron and the loss that use the targets.
    """
    if neuron.losses is not None and loss.name not in neuron.losses:
        problem = f"the {neuron.name} neuron cannot be trained with the loss {loss.name}"
        raise InputError(problem, f"use losses.{neuron.losses[0]}, or another neuron")
    outputs = neuron.num_outputs
    if loss.tasks == ("binary",) and outputs > 1:
        problem = f"the {loss.name} loss is for one output, but the neuron has {outputs} outputs"
        raise InputError(problem, "use losses.cross_entropy, or a neuron with outputs=1")
    if loss.tasks == ("multiclass",) and outputs == 1:
        problem = f"{loss.name} needs one output per class, but the neuron has only one output"
        raise InputError(problem, "give the neuron outputs=C, or use losses.logistic for two classes")
    if isinstance(neuron, Softmax) or (outputs > 1 and y.ndim == 1):
        classes = neuron.classes if isinstance(neuron, Softmax) else outputs
        labels = _one_hot_rows(y, classes).argmax(dim=1) if y.ndim == 2 else _class_labels(y, classes)
        if "multiclass" not in loss.tasks:
            problem = f"the {loss.name} loss does not support classes, but y contains labels for {classes} outputs"
            raise InputError(problem, f"use losses.cross_entropy, or give y with {classes} columns of real numbers")
        return neuron.targets(labels), labels
    columns = 1 if y.ndim == 1 else y.shape[1]
    if columns != outputs:
        problem = f"y has {counted(columns, 'column')}, but the neuron has {counted(outputs, 'output')}"
        raise InputError(problem, f"give the neuron outputs={columns}, or y with {counted(outputs, 'column')}")
    if outputs == 1 and "regression" not in loss.tasks:
        return _signs(y, loss), None
    if loss.name == "cross_entropy":
        return _probability_rows(y).T.contiguous(), None
    return (y.T.contiguous() if y.ndim == 2 else y), None


def _are_whole(y: Tensor) -> bool:
    return not y.is_floating_point() or bool((y == y.round()).all())


def _class_labels(y: Tensor, classes: int) -> Tensor:
    """Return y as int64; raise InputError if an entry is not one of the labels 0 .. C-1."""
    if not _are_whole(y) or int(y.min()) < 0 or int(y.max()) >= classes:
        problem = f"for {classes} outputs, y needs class labels from 0 to {classes - 1}, or {classes} columns"
        raise InputError(problem, ENCODE_LABELS)
    return y.long()


def _one_hot_rows(y: Tensor, classes: int) -> Tensor:
    if y.shape[1] != classes or not bool(((y == 0) | (y == 1)).all()) or not bool((y.sum(dim=1) == 1).all()):
        problem = f"y of shape {tuple(y.shape)} is not one-hot for {classes} classes"
        raise InputError(problem, f"give class labels 0 .. {classes - 1}, shape (n,)")
    return y.long()


def _probability_rows(y: Tensor) -> Tensor:
    """Return the rows of y, which must be one-hot or contain the probabilities of the classes (soft labels)."""
    if bool((y < 0).any()) or bool(((y.sum(dim=1) - 1).abs() > 1e-4).any()):
        problem = "with cross_entropy, every row of y must be one-hot or contain probabilities that sum to 1"
        raise InputError(problem, f"give class labels 0 .. {y.shape[1] - 1}, shape (n,), or rows that sum to 1")
    return y


def _signs(y: Tensor, loss: Loss) -> Tensor:
    """Return y as -1 and +1; the labels 0 and 1 are converted."""
    numbers = y.double()
    if bool(((numbers == 0) | (numbers == 1)).all()):
        return 2 * numbers - 1
    if not bool((numbers.abs() == 1).all()):
        problem = f"with the {loss.name} loss, y must contain -1 and +1, or 0 and 1"
        raise InputError(problem, "encode the two classes, for example with np.where(y == second_class, 1, -1)")
    return numbers
