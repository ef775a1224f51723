"""What a view may know: the run folder's files, read into memory and checked.

A view draws what is here without further doubts: every key and every column that a view uses has the type that it
expects, or reading has ended with one line that names the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from proxlearn.config.schema import Dtype, TrainConfig, build
from proxlearn.core.estimates import ESTIMATES
from proxlearn.errors import InputError, refuse_newer_format
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json, read_table, read_yaml
from proxlearn.run import checkpoint_file
from proxlearn.run.edited_settings import refuse_edited_settings
from proxlearn.run.metrics_version import MetricsConversion, metrics_file_version
from proxlearn.run.model_description import read_description
from proxlearn.run.previous_session import figures_step
from proxlearn.run.run_folder import SELECTION_FORMAT, RunFolder
from proxlearn.validators import choice, integer, optional, real, text

MOST_VALUE = 1e100
"""Of what is drawn: beyond, the arithmetic of an axis leaves the range of float64."""
WHOLE = integer(at_least=0, example=0)
STATUS = {
    "state": text,
    "step": WHOLE,
    "seconds": real(at_least=0, example=1),
    "dtype": choice(Dtype),
    "unmet": WHOLE,
    "switched_at": optional(WHOLE),
}
"""What the views use of status.json."""
CURVES = tuple(f"{part}_risk_{estimate}" for part in ("train", "test") for estimate in ESTIMATES)


@dataclass(frozen=True)
class RunData:
    """A run folder as the views see it; a file that is not there yet is None."""

    path: Path
    config: dict[str, Any]
    status: dict[str, Any]
    model: dict[str, Any]
    metrics: pd.DataFrame
    accuracy: pd.DataFrame | None
    confusion: pd.DataFrame | None
    points: pd.DataFrame | None

    @property
    def figures_step(self) -> int | None:
        """The step of ``accuracy`` and ``confusion``; None where it is not known, or there are no figures."""
        step: int | None = self.status["figures_step"] if self._has_figures else None
        return step

    @property
    def figures_note(self) -> str:
        """Of figures that are not of the run's newest step: of which one they are; otherwise empty."""
        if not self._has_figures or self.figures_step == self.status["step"]:
            return ""
        of = "an earlier step, which is not known" if self.figures_step is None else f"step {self.figures_step}"
        return f"figures of {of}; the run is at {self.status['step']}"

    @property
    def _has_figures(self) -> bool:
        return self.accuracy is not None or self.confusion is not None

    @property
    def title(self) -> str:
        config = self.config
        # A relative epsilon is a multiple of a length: one must not take it for epsilon itself.
        unit = "" if config.get("epsilon_quantile") is None else "×NN²"
        numbers = f"β={config['beta']:g}, ε={config['epsilon']:g}{unit}"
        return f"{config['dataset']['name']}, {numbers}, N={config['N']}"


def read_run_data(path: Path) -> RunData:
    """Read a finished or running run; what is damaged is an UnreadableFile."""
    while True:
        run = _read(path)
        # A session that ended meanwhile has replaced the figures: their step must be that of the tables read.
        if _status(RunFolder(path).status)["figures_step"] == run.status["figures_step"]:
            return run


def _read(path: Path) -> RunData:
    folder = RunFolder(path)
    try:
        status = _status(folder.status)
        config, model = _config(folder, status), read_description(folder.model)
        return RunData(
            path=path,
            config=config,
            status=status,
            model=model,
            metrics=read_metrics(folder.metrics, config),
            accuracy=_accuracy(folder.accuracy),
            confusion=_confusion(folder.confusion, len(model["classes"])),
            points=_points(folder.points, model),
        )
    except AbsentFile as error:
        raise InputError(
            f"{path} is not a run folder: no {error.path.name} in it", "name a folder `train` made"
        ) from error


def read_metrics(path: Path, config: dict[str, Any] | None = None) -> pd.DataFrame:
    """metrics.csv with at least one row; the columns that are drawn hold numbers.

    With the run's ``config``, rows of version 0.1.0 get the meaning that they have now.
    """

    def convert(content: str) -> str:
        if config is None or metrics_file_version(content.partition("\n")[0]) != 1:
            return content
        return MetricsConversion(config, lambda step: _stored_epsilon(path.parent, step))(content)

    table = read_table(path, convert=convert)
    _require_numbers(path, table, ("step", *CURVES, "ess", "kernel_offdiag"))
    if table.empty or not _are_whole(table["step"]):
        raise UnreadableFile(path, "it has no rows" if table.empty else "a step is no whole number")
    # An explosion on its way is no damage; it has no place on an axis.
    numbers = table.select_dtypes("number").columns
    return table.assign(**{name: table[name].where(table[name].abs() <= MOST_VALUE) for name in numbers})


def _stored_epsilon(path: Path, step: int) -> float | None:
    try:
        epsilon = checkpoint_file.read_checkpoint_file(
            checkpoint_file.checkpoint_path(path / "checkpoints", step)
        ).state.get("epsilon")
    except checkpoint_file.InvalidCheckpoint:
        return None
    return epsilon if isinstance(epsilon, float) else None


def _config(folder: RunFolder, status: dict[str, Any]) -> dict[str, Any]:
    """The run's config, with what was selected in the place of what it left open; refused if it was edited since."""
    config = read_yaml(folder.config)
    try:
        asked = build(TrainConfig, config)
    except InputError as error:
        raise UnreadableFile(folder.config, error.problem) from error
    refuse_edited_settings(folder, asked, status)
    try:
        record = read_json(folder.selection)
        refuse_newer_format(folder.selection, record.get("format"), SELECTION_FORMAT)
        chosen = record.get("chosen")
        if not isinstance(chosen, dict):
            raise UnreadableFile(folder.selection, "it does not say what was chosen")
        selected = status.get("selected")
        used = selected if isinstance(selected, dict) else {}
        for key in asked.selected:
            if key in used and used[key] != chosen.get(key):
                problem = f"{folder.path} was made with {key}={used[key]}, and selection.json has {chosen.get(key)}"
                raise InputError(problem, "set it back")
        config |= {key: value for key, value in chosen.items() if config.get(key) is None}
    except AbsentFile:
        pass
    try:
        checked = build(TrainConfig, config)
    except InputError as error:
        raise UnreadableFile(folder.config, error.problem) from error
    if checked.selected:
        raise UnreadableFile(folder.selection, f"what was chosen for {checked.selected[0]} is not there")
    return config


def _status(path: Path) -> dict[str, Any]:
    status = read_json(path)
    for name, check in STATUS.items():
        try:
            status[name] = check(name, status.get(name))
        except InputError as error:
            raise UnreadableFile(path, error.problem) from error
    try:
        return status | {"figures_step": figures_step(status)}
    except InputError as error:
        raise UnreadableFile(path, error.problem) from error


def _accuracy(path: Path) -> pd.DataFrame | None:
    table = _optional_table(path)
    if table is not None:
        _require_columns(path, table, ("part", "estimate"))
        _require_numbers(path, table, (name for name in table.columns if name not in ("part", "estimate")))
        table = table.astype({"part": str, "estimate": str})
    return table


def _confusion(path: Path, classes: int) -> pd.DataFrame | None:
    """Counts of every pair of classes for each estimate of the test part."""
    table = _optional_table(path)
    if table is None:
        return None
    _require_columns(path, table, ("part", "estimate"))
    _require_numbers(path, table, ("actual", "predicted", "count"))
    test = table[table["part"] == "test"]
    if not all(_are_whole(table[name]) for name in ("actual", "predicted", "count")):
        raise UnreadableFile(path, "a class or a count is no whole number")
    cells = set(zip(test["estimate"], test["actual"].astype(int), test["predicted"].astype(int), strict=True))
    expected = {(name, i, j) for name in ESTIMATES for i in range(classes) for j in range(classes)}
    if len(test) != len(cells) or cells != expected:
        raise UnreadableFile(path, f"it does not have a count for each pair of the {classes} classes")
    return table.astype({"actual": int, "predicted": int, "count": int})


def _points(path: Path, model: dict[str, Any]) -> pd.DataFrame | None:
    table = _optional_table(path)
    if table is None:
        return None
    names = (*(f"x{i}" for i in range(len(model["columns"]))), "target")
    _require_columns(path, table, ("part",))
    _require_numbers(path, table, names)
    values = table[list(names)].to_numpy(float)
    if table.empty or not np.isfinite(values).all():
        raise UnreadableFile(path, "a point is not finite" if len(table) else "it has no rows")
    if (np.abs(values) > MOST_VALUE).any():
        # Training takes such numbers, and scales them; axes cannot hold them, so that nothing is drawn over them.
        return None
    if model["classes"] and not table["target"].isin(range(len(model["classes"]))).all():
        raise UnreadableFile(path, "a target is none of the classes")
    return table.astype({"part": str})


def _optional_table(path: Path) -> pd.DataFrame | None:
    try:
        return read_table(path)
    except AbsentFile:
        return None


def _require_columns(path: Path, table: pd.DataFrame, names: Iterable[str]) -> None:
    for name in names:
        if name not in table:
            raise UnreadableFile(path, f"it has no column `{name}`")


def _require_numbers(path: Path, table: pd.DataFrame, names: Iterable[str]) -> None:
    """The columns are there and hold numbers, or nothing; an empty column is one of NaN."""
    for name in names:
        _require_columns(path, table, (name,))
        if table[name].dtype.kind not in "iufb":
            raise UnreadableFile(path, f"column `{name}` holds something that is no number")


def _are_whole(values: pd.Series) -> bool:
    numbers = values.to_numpy(float)
    return bool(np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers < 2**53).all()) and bool(
        (numbers == np.floor(numbers)).all()
    )
