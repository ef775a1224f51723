"""A model out of a run folder: model.json and the newest whole cloud, and neither the data nor the config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxlearn.core.neurons import NEURONS, num_parameters
from proxlearn.core.scores import TASKS
from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError, refuse_newer_format
from proxlearn.predict.model import Model
from proxlearn.run.checkpoint import newest_valid
from proxlearn.run.folder import MODEL_FORMAT, RunFolder
from proxlearn.run.overwrite import recover_for_reading


def load(path: Path) -> Model:
    """The model of a run, finished or not."""
    if not path.is_dir():
        raise InputError(f"no folder {path}", "name one that `proxlearn train` made")
    recover_for_reading(path)
    model = find(path)
    if model is None:
        raise InputError(f"{path} holds no valid checkpoint", "wait for the first one, or train again")
    return model


def find(path: Path) -> Model | None:
    """The same; None where the run has stored no cloud yet. Whatever does not fit together is refused."""
    folder = RunFolder(path)
    try:
        described = json.loads(folder.model.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path} is not a run folder: no model.json in it", "name one `train` made") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(folder, f"cannot be read ({type(error).__name__})") from error
    if isinstance(described, dict):
        refuse_newer_format(folder.model, described.get("format"), MODEL_FORMAT)
    found = newest_valid(folder.checkpoints)
    if found is None:
        return None
    try:
        model = _described(described, found.cloud.to("cpu", torch.float64))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(folder, f"lacks what a prediction needs ({type(error).__name__}: {error!s:.60})") from error
    if model.cloud.theta.shape[1] != num_parameters(model.neuron, len(model.columns)):
        raise _unusable(folder, "does not fit the cloud beside it")
    return model


def _described(values: Any, cloud: Any) -> Model:
    columns, classes = (tuple(str(name) for name in values[key]) for key in ("columns", "classes"))
    # Runs of earlier versions did not say what their target was called.
    target = values.get("target")
    return Model(
        NEURONS[values["neuron"]](len(classes)),
        TASKS[values["task"]],
        cloud,
        _scaler(values["scaling"], len(columns)),
        _scaler(values["target_scaling"], 1),
        columns,
        classes,
        None if target is None else str(target),
    )


def _scaler(values: Any, width: int) -> Scaler:
    shift, factor = (np.array(values[key], dtype=np.float64) for key in ("shift", "factor"))
    if not shift.shape == factor.shape == (width,) or not np.isfinite([shift, factor]).all() or not factor.all():
        raise ValueError("a scaling of another shape, or not finite")
    return Scaler(shift, factor)


def _unusable(folder: RunFolder, why: str) -> InputError:
    return InputError(f"{folder.model} {why}", "copy the run folder again, or repeat its `train` command")
