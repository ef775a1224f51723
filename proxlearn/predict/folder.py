"""A model out of a run folder: model.json and the newest whole cloud, and neither the data nor the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.neurons.registry import NEURONS, num_parameters
from proxlearn.core.scores import TASKS
from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError
from proxlearn.files.safe_read import AbsentFile, UnreadableFile
from proxlearn.predict.model import Model
from proxlearn.run.checkpoint import Checkpoint, newest_valid
from proxlearn.run.model_description import read_description
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.run_folder import RunFolder
from proxlearn.run.run_identity import identity_of, require_own, tell_foreign


def load(path: Path) -> Model:
    """The model of a run, finished or not."""
    if not path.is_dir():
        raise InputError(f"no folder {path}", "name one that `proxlearn train` made")
    refuse_interrupted(path)
    model = find(path)
    if model is None:
        raise InputError(f"{path} holds no valid checkpoint", "wait for the first one, or train again")
    return model


def find(path: Path) -> Model | None:
    """The same; None where the run has stored no cloud yet. Whatever does not fit together is refused."""
    folder = RunFolder(path)
    try:
        described = read_description(folder.model)
    except AbsentFile as error:
        raise InputError(f"{path} is not a run folder: no model.json in it", "name one `train` made") from error
    found = newest_checkpoint(folder)
    if found is None:
        return None
    model = build_model(described, found.cloud.to("cpu", torch.float64))
    if model.cloud.theta.shape[1] != num_parameters(model.neuron, len(model.columns)):
        raise UnreadableFile(folder.model, "it does not fit the cloud beside it")
    return model


def newest_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """The newest whole checkpoint of the folder's own run; another run's is skipped with a notice."""
    identity = identity_of(folder)
    return newest_valid(folder.checkpoints, tell_foreign, lambda found: require_own(found.run, identity))


def build_model(description: dict[str, Any], cloud: PointCloud) -> Model:
    """A model from the content of model.json and a cloud."""
    columns, classes = (tuple(description[key]) for key in ("columns", "classes"))
    return Model(
        NEURONS[description["neuron"]](len(classes)),
        TASKS[description["task"]],
        cloud,
        _scaler(description["scaling"]),
        _scaler(description["target_scaling"]),
        columns,
        classes,
        # Runs of earlier versions did not say what their target was called.
        description.get("target"),
    )


def _scaler(values: dict[str, list[float]]) -> Scaler:
    return Scaler(*(np.array(values[key], dtype=np.float64) for key in ("shift", "factor")))
