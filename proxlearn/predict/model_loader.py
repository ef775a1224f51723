"""Loading of a model from model.json and the newest valid checkpoint of a run folder, without data or config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.losses import Quadratic, find_loss
from proxlearn.core.neurons.neuron import num_parameters
from proxlearn.core.neurons.registry import make_neuron
from proxlearn.core.tasks import TASKS
from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError
from proxlearn.files.safe_read import AbsentFile, UnreadableFile
from proxlearn.predict.model import Model
from proxlearn.run.checkpoint import Checkpoint, newest_valid
from proxlearn.run.model_description import read_description, row_encoder
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.resume_point import read_identity, require_same_run, warn_foreign
from proxlearn.run.run_folder import RunFolder


def load_model(path: Path) -> Model:
    """Load the model of a run, which may still be running; raise InputError if the folder has no model."""
    if not path.is_dir():
        raise InputError(f"the folder {path} does not exist", "give a folder that `proxlearn train` created")
    refuse_interrupted(path)
    model = find_model(path)
    if model is None:
        raise InputError(f"{path} holds no valid checkpoint", "wait for the first checkpoint, or train again")
    return model


def find_model(path: Path) -> Model | None:
    """Load the model of a run; return None if the run has no checkpoint yet.

    Raise InputError if the folder has no model.json, or if the file does not match the cloud.
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
    """Load the newest valid checkpoint of the folder's run; skip a checkpoint of another run with a notice."""
    identity = read_identity(folder)
    return newest_valid(folder.checkpoints, warn_foreign, lambda candidate: require_same_run(candidate.run, identity))


def build_model(description: dict[str, Any], cloud: PointCloud) -> Model:
    columns, classes = (tuple(description[key]) for key in ("columns", "classes"))
    # Early runs did not store the name of their target.
    target = description.get("target")
    targets = tuple(target) if isinstance(target, list) else () if target is None else (target,)
    activation = description.get("activation", "tanh")
    loss, slope = find_loss(description.get("loss")), description.get("link_slope")
    return Model(
        make_neuron(description["neuron"], len(classes), activation, max(1, len(targets))),
        TASKS[description["task"]](loss if slope is None else Quadratic(slope)),
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
