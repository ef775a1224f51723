"""Targets from a user's y: real numbers as they are, classes as what the neuron and the loss are trained on."""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.core.losses import Loss
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.softmax import SoftmaxNeuron
from proxlearn.core.samples import Samples
from proxlearn.errors import InputError

__all__ = ["check_neuron", "count_outputs", "make_targets"]

ENCODE_LABELS = "encode the classes as 0 .. C-1, for example by np.unique(y, return_inverse=True)[1]"


def count_outputs(y: Tensor, loss: Loss) -> int:
    """Return the number of outputs that targets (n, or n x C) need: one per column, or one per class of labels."""
    if y.ndim == 2:
        return max(1, y.shape[1])
    if loss.name == "cross_entropy" and y.ndim == 1 and _are_whole(y):
        return max(2, int(y.max()) + 1)
    return 1


def make_targets(y: Tensor, neuron: Neuron, loss: Loss, n: int) -> tuple[Tensor, Tensor | None]:
    """Return the targets that a neuron's outputs are compared with, n or C x n, and the class labels where y has them.

    Parameters
    ----------
    y : Tensor, shape (n,) or (n, C)
    neuron, loss
        What the targets are for.
    n : int
        Number of samples.
    """
    if y.ndim not in (1, 2) or len(y) != n:
        problem = f"y has the shape {tuple(y.shape)}, and X has {n} rows"
        raise InputError(problem, "give one target, or one row of targets, per sample")
    if not bool(torch.isfinite(y).all()):
        raise InputError("y holds a number that is not finite", "remove or replace such targets")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if neuron.losses is not None and loss.name not in neuron.losses:
        problem = f"the {neuron.name} neuron cannot be trained with the loss {loss.name}"
        raise InputError(problem, f"use losses.{neuron.losses[0]}, or another neuron")
    outputs = neuron.num_outputs
    if loss.name == "logistic" and outputs > 1:
        problem = f"the logistic loss is for one output, and the neuron has {outputs}"
        raise InputError(problem, "use losses.cross_entropy, or a neuron with outputs=1")
    if loss.name == "cross_entropy" and outputs == 1:
        problem = "cross_entropy needs an output per class, and the neuron has one output"
        raise InputError(problem, "give the neuron outputs=C, or use losses.logistic for two classes")
    if isinstance(neuron, SoftmaxNeuron) or (outputs > 1 and y.ndim == 1):
        classes = neuron.classes if isinstance(neuron, SoftmaxNeuron) else outputs
        labels = _one_hot_rows(y, classes).argmax(dim=1) if y.ndim == 2 else _class_labels(y, classes)
        return neuron.targets(labels), labels
    columns = 1 if y.ndim == 1 else y.shape[1]
    if columns != outputs:
        problem = f"y has {columns} columns, and the neuron has {outputs} output{'s' if outputs > 1 else ''}"
        raise InputError(problem, f"give the neuron outputs={columns}, or y with {outputs} column(s)")
    if loss.name == "logistic":
        return _signs(y), None
    if loss.name == "cross_entropy":
        return _probability_rows(y).T.contiguous(), None
    return (y.T.contiguous() if y.ndim == 2 else y), None


def check_neuron(neuron: Neuron, samples: Samples) -> None:
    """Evaluate one particle at one sample; a neuron that fails, or returns another shape, raises InputError."""
    sample = samples.take_rows(torch.arange(1, device=samples.X.device))
    theta = torch.zeros(1, num_parameters(neuron, samples.X.shape[1]), dtype=samples.X.dtype, device=samples.X.device)
    try:
        shape = tuple(neuron.phi(theta, sample).shape)
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        n_x = samples.X.shape[1]
        problem = f"the neuron `{neuron.name}` cannot be evaluated for one particle and one sample: {error}"
        raise InputError(problem, f"x has {n_x} features: check the blocks of theta and the operations") from error
    if shape != (1, sample.y.numel()):
        problem = f"the neuron `{neuron.name}` answers one sample with shape {shape}, not {(1, sample.y.numel())}"
        raise InputError(problem, "let outputs(theta, X) return N x outputs x n")


def _are_whole(y: Tensor) -> bool:
    return not y.is_floating_point() or bool((y == y.round()).all())


def _class_labels(y: Tensor, classes: int) -> Tensor:
    """Return labels 0 .. C-1 as int64."""
    if not _are_whole(y) or int(y.min()) < 0 or int(y.max()) >= classes:
        problem = f"y must hold class labels from 0 to {classes - 1}, or {classes} columns, for {classes} outputs"
        raise InputError(problem, ENCODE_LABELS)
    return y.long()


def _one_hot_rows(y: Tensor, classes: int) -> Tensor:
    if y.shape[1] != classes or not bool(((y == 0) | (y == 1)).all()) or not bool((y.sum(dim=1) == 1).all()):
        problem = f"y of shape {tuple(y.shape)} is not one-hot for {classes} classes"
        raise InputError(problem, f"give class labels 0 .. {classes - 1}, shape (n,)")
    return y.long()


def _probability_rows(y: Tensor) -> Tensor:
    """Return rows that are one-hot, or probabilities of the classes (soft labels)."""
    if bool((y < 0).any()) or bool(((y.sum(dim=1) - 1).abs() > 1e-4).any()):
        problem = "for cross_entropy every row of y must be one-hot, or probabilities with the sum 1"
        raise InputError(problem, f"give class labels 0 .. {y.shape[1] - 1}, shape (n,), or correct the rows")
    return y


def _signs(y: Tensor) -> Tensor:
    """Return -1 and +1; the labels 0 and 1 are converted."""
    numbers = y.double()
    if bool(((numbers == 0) | (numbers == 1)).all()):
        return 2 * numbers - 1
    if not bool((numbers.abs() == 1).all()):
        problem = "for the logistic loss y must hold -1 and +1, or 0 and 1"
        raise InputError(problem, "encode the two classes, for example by np.where(y == second_class, 1, -1)")
    return numbers
