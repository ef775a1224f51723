"""The reader of model.json, which describes the inputs and outputs of a cloud; all values are checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from proxlearn.core.losses import LOSSES
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.registry import NEURONS, make_neuron
from proxlearn.core.registry import INSTALL_PACKAGE
from proxlearn.core.tasks import TASKS
from proxlearn.errors import refuse_newer_format
from proxlearn.files.safe_read import REMEDY, UnreadableFile, read_json
from proxlearn.run.run_folder import MODEL_FORMAT

TEXT_LISTS = ("columns", "classes")
ADDED_VALUES = {"image": None, "scaled_apart": False, "activation": "tanh", "loss": "quadratic"}
"""Defaults for values that are missing in the model.json of an earlier version."""
SCALINGS = ("scaling", "target_scaling")


def read_description(path: Path) -> dict[str, Any]:
    """Return the values of model.json; raise AbsentFile or UnreadableFile if it is missing or not valid."""
    values = read_json(path)
    refuse_newer_format(path, values.get("format"), MODEL_FORMAT)
    for kind, registry in (("neuron", NEURONS), ("loss", LOSSES)):
        name = values.get(kind)
        if isinstance(name, str) and name not in registry:
            raise UnreadableFile(path, f"its {kind} {name!r:.40} is unknown", f"{INSTALL_PACKAGE}, or {REMEDY}")
    try:
        problem = _problem(values)
    except KeyError as error:
        raise UnreadableFile(path, f"it lacks {error.args[0]!r}") from error
    if problem:
        raise UnreadableFile(path, problem)
    return {**ADDED_VALUES, **values}


def _problem(values: dict[str, Any]) -> str:
    """Return the reason why a description is unusable, or an empty string; raise KeyError if a value is missing."""
    for key in TEXT_LISTS:
        if not isinstance(values[key], list) or not all(isinstance(name, str) for name in values[key]):
            return f"its {key} are not a list of strings"
    columns, classes = values["columns"], values["classes"]
    task, neuron = values["task"], values["neuron"]
    activation, loss = (values.get(key, ADDED_VALUES[key]) for key in ("activation", "loss"))
    if not isinstance(task, str) or task not in TASKS or activation not in ACTIVATIONS:
        return f"its task {task!r:.40} or its activation {activation!r:.40} is unknown"
    if not isinstance(neuron, str) or not isinstance(loss, str):
        return "its neuron or its loss is not a name"
    if task not in make_neuron(neuron, max(2, len(classes)), None).tasks:
        return f"the {neuron} neuron does not support the task {task}"
    expected = {"regression": len(classes) == 0, "binary": len(classes) == 2, "multiclass": len(classes) >= 2}
    if not columns or not expected[task]:
        return f"its {len(columns)} columns and {len(classes)} classes do not match the task {task}"
    for key, width in zip(SCALINGS, (len(columns), 1), strict=True):
        if not all(_are_numbers(values[key], part, width) for part in ("shift", "factor")):
            return f"its {key} does not have {width} finite numbers each for shift and factor"
        if not all(values[key]["factor"]):
            return f"its {key} has a factor of 0"
    image = values.get("image")
    is_size = isinstance(image, list) and len(image) == 2 and all(type(side) is int and side > 0 for side in image)
    if image is not None and not (is_size and math.prod(image) == len(columns)):
        return "the number of pixels of its image differs from the number of columns"
    if not isinstance(values.get("scaled_apart", False), bool):
        return "its scaled_apart is neither true nor false"
    if not isinstance(values.get("target"), str | None):
        return "its target is not a name"
    return ""


def _are_numbers(scaling: Any, part: str, width: int) -> bool:
    """Return whether a part of a scaling is a list of ``width`` finite numbers."""
    numbers = scaling[part] if isinstance(scaling, dict) else None
    return (
        isinstance(numbers, list)
        and len(numbers) == width
        and all(type(x) in (int, float) and abs(x) < 2**1023 and math.isfinite(x) for x in numbers)
    )
