"""A trained model: a cloud with its neuron, its task and its scalings; it is loaded from the files of a run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.losses import find_loss, with_link
from proxlearn.core.neurons.neuron import Neuron, num_parameters
from proxlearn.core.neurons.registry import make_neuron
from proxlearn.core.tasks import ESTIMATES, TASKS, Task, mean_outputs, standard_error
from proxlearn.data.new_rows import RowEncoder
from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError
from proxlearn.files.safe_read import AbsentFile, UnreadableFile
from proxlearn.run.checkpoint import Checkpoint, newest_valid
from proxlearn.run.model_description import read_description, row_encoder
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.resume_point import read_identity, require_same_run, warn_foreign
from proxlearn.run.run_folder import RunFolder

BLOCK = 2**22
"""Maximum number of outputs of individual particles that are in memory at once (32 MiB). This limit makes memory use
independent of the number of rows.
"""


@dataclass(frozen=True)
class Prediction:
    """The predictions for n rows, with their probabilities and standard errors."""

    predicted: np.ndarray
    """Class indices, shape (n,), or values in the target's units, shape (n,) or (n, outputs) for several targets."""
    probabilities: np.ndarray
    """Class probabilities, shape (n, C); for a real target, shape (n, 0)."""
    errors: np.ndarray
    """Standard errors over the particles (``core.tasks.standard_error``) of the probabilities, shape (n, C), or of
    the predicted values, with the shape of ``predicted``.
    """

    @property
    def spread(self) -> np.ndarray:
        """The standard error of the predicted value, or of the probability of the predicted class."""
        if not self.probabilities.shape[1]:
            return self.errors
        spread: np.ndarray = np.take_along_axis(self.errors, self.predicted[:, None], axis=1)[:, 0]
        return spread


@dataclass(frozen=True)
class Model:
    """A trained model, which predicts the targets of rows in the user's units; all computations use float64."""

    neuron: Neuron
    task: Task
    cloud: PointCloud
    scaler: Scaler
    target_scaler: Scaler
    columns: tuple[str, ...]
    classes: tuple[str, ...] = ()
    target: str | None = None
    """The name of the target column; None if the target has no name, or if there are several targets."""
    targets: tuple[str, ...] = ()
    """The names of all target columns."""
    rows: RowEncoder | None = None
    """The encoder that converts the columns of a table to features; None if rows already contain the features."""

    def mean_outputs(self, X: np.ndarray) -> dict[str, Tensor]:
        """Return the mean outputs over the cloud under both estimates, each of shape (outputs, n)."""
        weighted, unweighted = self._collect(
            X, lambda outputs: [mean_outputs(outputs, self.cloud)[estimate] for estimate in ESTIMATES]
        )
        self._check_finite(X, weighted)
        self._check_finite(X, unweighted)
        return dict(zip(ESTIMATES, (weighted, unweighted), strict=True))

    def values(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Return the predicted values under both estimates, in the units of the target."""
        return {estimate: self._in_units(f) for estimate, f in self.mean_outputs(X).items()}

    def labels(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """Return the indices of the predicted classes under both estimates."""
        return {estimate: self.task.predicted(f).numpy() for estimate, f in self.mean_outputs(X).items()}

    def predict(self, X: np.ndarray, estimate: str = "weighted") -> Prediction:
        """Predict the targets of ``X`` (rows x features) under one estimate, with probabilities and standard errors."""
        cloud = self.cloud
        f, errors = self._collect(
            X, lambda outputs: [mean_outputs(outputs, cloud)[estimate], standard_error(outputs, cloud, estimate)]
        )
        self._check_finite(X, f)
        deviations = self.task.standard_errors(f, errors).T.numpy()
        if self.classes:
            return Prediction(self.task.predicted(f).numpy(), self.task.probabilities(f).T.numpy(), deviations)
        values = self._in_units(f)
        self._check_finite(X, torch.from_numpy(np.atleast_2d(values.T)))
        return Prediction(values, np.empty((len(X), 0)), _squeeze_single(deviations / self.target_scaler.factor))

    def read_rows(self, X: Any) -> np.ndarray:
        """Convert rows (a matrix, or a data frame with named columns) to an n x n_x matrix of float64 features."""
        names = getattr(X, "columns", None)
        encoder = self.rows if names is not None and self.rows and not self.rows.encoder.is_identity else None
        columns = self.columns if encoder is None else encoder.inputs
        missing = [name for name in columns if names is not None and name not in names]
        if missing:
            listed = ", ".join(columns[:20])
            raise InputError(f"X has no column `{missing[0]}`", f"give all columns of the run: {listed}")
        if encoder is not None:
            features, complete, _ = encoder.encode(X.reset_index(drop=True))
            if not complete.all():
                row = int((~complete).argmax())
                raise InputError(f"X lacks a value in row {row}", "remove this row (the run uses dataset.missing=drop)")
            return features
        try:
            # The memory layout is always the same, because the last bits of a product depend on it.
            features = np.asarray(X if names is None else X[list(columns)], dtype=np.float64, order="C")
        except (TypeError, ValueError) as error:
            raise InputError("X is not a matrix of numbers", "give one row of numbers per sample") from error
        if features.ndim != 2 or features.shape[1] != len(columns):
            problem = f"X has the shape {features.shape} instead of (n, {len(columns)})"
            raise InputError(problem, "give a matrix with one column per feature of the run")
        if not np.isfinite(features).all():
            row = int((~np.isfinite(features)).any(axis=1).argmax())
            raise InputError(f"row {row} of X contains a number that is not finite", "remove or replace such numbers")
        return features

    def _collect(self, X: np.ndarray, figures_of: Callable[[Tensor], list[Tensor]]) -> Tensor:
        """Apply ``figures_of`` to the outputs of each block of rows; return a tensor of shape (figures, outputs, n).

        The whole result is allocated with the first block. If a small result were allocated after every large block,
        the memory would be fragmented, and memory use would grow with every block.
        """
        collected, place = None, 0
        for outputs in self._outputs(X):
            block = torch.stack(figures_of(outputs))
            if collected is None:
                collected = block.new_empty(*block.shape[:-1], len(X))
            collected[..., place : place + block.shape[-1]] = block
            place += block.shape[-1]
        assert collected is not None, "there is at least one block"
        return collected

    def _outputs(self, X: np.ndarray) -> Iterator[Tensor]:
        """Yield the outputs of the individual particles, N x outputs x rows, one block of rows at a time."""
        N, outputs = len(self.cloud.theta), max(1, len(self.classes), len(self.target_scaler.shift))
        rows = max(1, BLOCK // (N * outputs))
        with torch.no_grad():
            for start in range(0, max(1, len(X)), rows):
                with np.errstate(over="ignore", invalid="ignore"):
                    # An overflow is reported later, when the output is not finite.
                    scaled = torch.from_numpy(self.scaler(X[start : start + rows]))
                yield self.neuron.outputs(self.cloud.theta, scaled)

    def _check_finite(self, X: np.ndarray, f: Tensor) -> None:
        """Raise InputError if an output (outputs x n) is not finite.

        The message names the column with the largest scaled value in the first such row.
        """
        finite = f.isfinite().all(dim=0).numpy()
        if finite.all():
            return
        row = X[int((~finite).argmax())]
        with np.errstate(all="ignore"):
            column = int(np.nan_to_num(np.abs(self.scaler(row[None])[0]), nan=np.inf).argmax())
        name = f"column `{self.columns[column]}`" if self.columns else f"feature {column}"
        problem = f"{name} contains {row[column]:.6g}, which is too far from the training rows for a finite prediction"
        raise InputError(problem, "correct the number, or delete the row")

    def _in_units(self, f: Tensor) -> np.ndarray:
        """Convert outputs from the scale of the training targets to the units of the target."""
        with np.errstate(over="ignore"):
            return _squeeze_single(f.T.numpy() / self.target_scaler.factor + self.target_scaler.shift)


def _squeeze_single(values: np.ndarray) -> np.ndarray:
    """Convert an n x 1 array to a vector; leave an array with several columns unchanged."""
    return values[:, 0] if values.shape[1] == 1 else values


def load_model(path: Path) -> Model:
    """Load the model of a run, which may still be running; raise InputError if the folder does not contain a model."""
    if not path.is_dir():
        raise InputError(f"the folder {path} does not exist", "give a folder that `proxlearn train` created")
    refuse_interrupted(path)
    model = find_model(path)
    if model is None:
        raise InputError(f"{path} contains no valid checkpoint", "wait for the first checkpoint, or train again")
    return model


def find_model(path: Path) -> Model | None:
    """Load the model of a run; return None if the run has no valid checkpoint.

    Raise InputError if the folder has no model.json, or if model.json does not match the cloud.
    """
    folder = RunFolder(path)
    try:
        description = read_description(folder.model)
    except AbsentFile as error:
        raise InputError(
            f"{path} is not a run folder: it has no model.json", "give a folder that `proxlearn train` created"
        ) from error
    newest = newest_checkpoint(folder)
    if newest is None:
        return None
    model = build_model(description, newest.cloud.to("cpu", torch.float64))
    if model.cloud.theta.shape[1] != num_parameters(model.neuron, len(model.columns)):
        raise UnreadableFile(folder.model, "it does not match the cloud in the same folder")
    return model


def newest_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """Load the newest valid checkpoint of a run; return None if the run has no valid checkpoint.

    A checkpoint of another run is skipped with a notice.
    """
    identity = read_identity(folder)
    return newest_valid(folder.checkpoints, warn_foreign, lambda candidate: require_same_run(candidate.run, identity))


def build_model(description: dict[str, Any], cloud: PointCloud) -> Model:
    columns, classes = (tuple(description[key]) for key in ("columns", "classes"))
    # Early versions did not store the name of the target.
    target = description.get("target")
    targets = tuple(target) if isinstance(target, list) else () if target is None else (target,)
    activation = description.get("activation", "tanh")
    loss, slope = find_loss(description.get("loss")), description.get("link_slope")
    return Model(
        make_neuron(description["neuron"], len(classes), activation, max(1, len(targets))),
        TASKS[description["task"]](with_link(loss, slope)),
        cloud,
        _build_scaler(description["scaling"]),
        _build_scaler(description["target_scaling"]),
        columns,
        classes,
        targets[0] if len(targets) == 1 else None,
        targets,
        row_encoder(description),
    )


def _build_scaler(values: dict[str, list[float]]) -> Scaler:
    return Scaler(*(np.array(values[key], dtype=np.float64) for key in ("shift", "factor")))
