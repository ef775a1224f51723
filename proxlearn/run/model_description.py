"""The reader of model.json, which describes the inputs and outputs of a cloud; all values are checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from proxlearn.core.losses import LOSSES
from proxlearn.core.neurons.activations import ACTIVATIONS
from proxlearn.core.neurons.registry import NEURONS, make_neuron
from proxlearn.core.registry import how_to_add
from proxlearn.core.tasks import TASKS
from proxlearn.data.csv_file import TableFormat
from proxlearn.data.feature_encoding import FeatureEncoder
from proxlearn.data.new_rows import RowEncoder
from proxlearn.errors import refuse_newer_format
from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.run.run_folder import MODEL_FORMAT

TEXT_LISTS = ("columns", "classes")
ADDED_VALUES = {
    "image": None,
    "scaled_apart": False,
    "activation": "tanh",
    "loss": "quadratic",
    "encoding": None,
    "reading": None,
    "link_slope": None,
}
"""Defaults for values that are missing in the model.json of an earlier version."""
SCALINGS = ("scaling", "target_scaling")


def read_description(path: Path) -> dict[str, Any]:
    """Return the values of model.json; raise AbsentFile or UnreadableFile if it is missing or not valid."""
    values = read_json(path)
    refuse_newer_format(path, values.get("format"), MODEL_FORMAT)
    for kind, registry in (("neuron", NEURONS), ("loss", LOSSES)):
        name = values.get(kind)
        if isinstance(name, str) and name not in registry:
            raise UnreadableFile(path, f"its {kind} {name!r:.40} is unknown", how_to_add(registry.group))
    try:
        problem = _problem(values)
    except KeyError as error:
        raise UnreadableFile(path, f"it lacks {error.args[0]!r}") from error
    if problem:
        raise UnreadableFile(path, problem)
    return {**ADDED_VALUES, **values}


def _problem(values: dict[str, Any]) -> str:
    """Return the reason why a description is unusable, or "" if it is usable; raise KeyError if a value is missing."""
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
        return f"its numbers of columns ({len(columns)}) and classes ({len(classes)}) do not match the task {task}"
    targets = values.get("target")
    if isinstance(targets, list):
        if task != "regression" or len(targets) < 2 or not all(isinstance(name, str) for name in targets):
            return "its target is neither a name nor a list of names of real targets"
    elif not isinstance(targets, str | None):
        return "its target is not a name"
    outputs = len(targets) if isinstance(targets, list) else 1
    for key, width in zip(SCALINGS, (len(columns), outputs), strict=True):
        if not all(_are_numbers(values[key], part, width) for part in ("shift", "factor")):
            return f"the shift and the factor of its {key} are not lists of {width} finite numbers"
        if not all(values[key]["factor"]):
            return f"its {key} has a factor of 0"
    image = values.get("image")
    is_size = isinstance(image, list) and len(image) == 2 and all(type(side) is int and side > 0 for side in image)
    if image is not None and not (is_size and math.prod(image) == len(columns)):
        return "its image is not a height and a width whose product is the number of columns"
    if not isinstance(values.get("scaled_apart", False), bool):
        return "its scaled_apart is neither true nor false"
    slope = values.get("link_slope")
    if slope is not None and not (type(slope) in (int, float) and 0 < slope < math.inf):
        return "its link_slope is not a positive number"
    return _encoding_problem(values)


def _encoding_problem(values: dict[str, Any]) -> str:
    """Return the reason why the column encoding in a description is unusable, or "" if it is usable."""
    try:
        rows = row_encoder(values)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        return f"its column encoding is not valid ({error})"
    if rows.encoder.features != tuple(values["columns"]):
        return "its column encoding does not match its columns"
    return ""


def row_encoder(values: dict[str, Any]) -> RowEncoder:
    """Return the row encoder that a description defines; raise TypeError, KeyError or ValueError if it is not valid."""
    if values.get("encoding") is None:
        return RowEncoder(FeatureEncoder(tuple(values["columns"])))
    reading = values.get("reading") or {}
    decimal, header = reading.get("decimal"), reading.get("header", True)
    skipped, markers = reading.get("skip_lines", 0), tuple(reading.get("missing_values", ()))
    if decimal not in (None, "comma", "point") or type(header) is not bool or type(skipped) is not int or skipped < 0:
        raise ValueError("a value of `reading` is out of range")
    if not all(isinstance(marker, str) for marker in markers):
        raise TypeError("a marker of missing values is not a string")
    form = TableFormat(decimal, header, skipped)
    return RowEncoder(FeatureEncoder.from_description(values["encoding"]), form, markers)


def _are_numbers(scaling: Any, part: str, width: int) -> bool:
    """Return whether a part of a scaling is a list of ``width`` finite numbers."""
    numbers = scaling[part] if isinstance(scaling, dict) else None
    return (
        isinstance(numbers, list)
        and len(numbers) == width
        and all(type(x) in (int, float) and abs(x) < 2**1023 and math.isfinite(x) for x in numbers)
    )
