"""Read and validate the files of a run folder, including its CSV tables: metrics, accuracy, confusion and points.

Reading raises an error that names the file if a key or a column that the views use does not have the expected type, so
the views need no further checks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from proxlearn.config.schema import Dtype, TrainConfig, build
from proxlearn.core.registry import accept_any_name
from proxlearn.core.tasks import ESTIMATES
from proxlearn.errors import InputError, refuse_newer_format
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json, read_table, read_yaml
from proxlearn.run import checkpoint_file
from proxlearn.run.metrics import MetricsConversion, metrics_file_version
from proxlearn.run.model_description import read_description
from proxlearn.run.previous_session import figures_step
from proxlearn.run.run_folder import SELECTION_FORMAT, RunFolder, refuse_edited_settings
from proxlearn.validators import choice, integer, optional, real, text
from proxlearn.views.style import LARGEST_DRAWN

CURVES = tuple(f"{part}_risk_{estimate}" for part in ("train", "test") for estimate in ESTIMATES)
"""Columns of metrics.csv that every run has and that the views draw."""
LARGEST_COUNT = 2**53
"""Upper limit of the whole numbers in a table, because larger numbers are not exact in float64."""


def read_metrics(path: Path, config: dict[str, Any] | None = None) -> pd.DataFrame:
    """Read metrics.csv; raise UnreadableFile if it has no rows or if a column that is drawn is not numeric.

    If ``config`` is given, metrics of version 0.1.0 are converted to the current definitions.
    """

    def convert(content: str) -> str:
        if config is None or metrics_file_version(content.partition("\n")[0]) != 1:
            return content
        return MetricsConversion(config, lambda step: _stored_epsilon(path.parent, step))(content)

    table = read_table(path, convert=convert)
    _require_numbers(path, table, ("step", *CURVES, "ess", "kernel_offdiag"))
    if table.empty or not _are_counts(table["step"]):
        raise UnreadableFile(path, "it has no rows" if table.empty else "a step is not a whole number")
    # The file of a diverging run is not damaged; values that no axis can show become NaN.
    numbers = table.select_dtypes("number").columns
    return table.assign(**{name: table[name].where(table[name].abs() <= LARGEST_DRAWN) for name in numbers})


def read_accuracy(path: Path) -> pd.DataFrame | None:
    """Read accuracy.csv, the final metrics per part and estimate, or return None if it does not exist."""
    table = _read_optional(path)
    if table is not None:
        _require_columns(path, table, ("part", "estimate"))
        _require_numbers(path, table, (name for name in table.columns if name not in ("part", "estimate")))
        table = table.astype({"part": str, "estimate": str})
    return table


def read_confusion(path: Path, classes: int) -> pd.DataFrame | None:
    """Read confusion.csv, or return None if it does not exist.

    Raise UnreadableFile unless the test part has exactly one count per estimate and pair of classes.
    """
    table = _read_optional(path)
    if table is None:
        return None
    _require_columns(path, table, ("part", "estimate"))
    _require_numbers(path, table, ("actual", "predicted", "count"))
    test = table[table["part"] == "test"]
    if not all(_are_counts(table[name]) for name in ("actual", "predicted", "count")):
        raise UnreadableFile(path, "a class or a count is not a whole number")
    cells = set(zip(test["estimate"], test["actual"].astype(int), test["predicted"].astype(int), strict=True))
    expected = {(name, i, j) for name in ESTIMATES for i in range(classes) for j in range(classes)}
    if len(test) != len(cells) or cells != expected:
        raise UnreadableFile(path, "it does not have exactly one count per estimate, actual class and predicted class")
    return table.astype({"actual": int, "predicted": int, "count": int})


def read_points(path: Path, model: dict[str, Any]) -> pd.DataFrame | None:
    """Read points.csv, which contains the data points.

    Return None if the file is absent, or if it contains a number that is too large to be drawn.
    """
    table = _read_optional(path)
    if table is None:
        return None
    names = (*(f"x{i}" for i in range(len(model["columns"]))), "target")
    _require_columns(path, table, ("part",))
    _require_numbers(path, table, names)
    values = table[list(names)].to_numpy(float)
    if table.empty or not np.isfinite(values).all():
        raise UnreadableFile(path, "a point is not finite" if len(table) else "it has no rows")
    if (np.abs(values) > LARGEST_DRAWN).any():
        # Training accepts and scales such numbers, but no axis can show them.
        return None
    if model["classes"] and not table["target"].isin(range(len(model["classes"]))).all():
        raise UnreadableFile(path, "a target is not one of the classes")
    return table.astype({"part": str})


def _stored_epsilon(folder: Path, step: int) -> float | None:
    """Return the epsilon stored in the checkpoint of ``step``, or None if this checkpoint or its epsilon is missing."""
    path = checkpoint_file.checkpoint_path(folder / "checkpoints", step)
    try:
        epsilon = checkpoint_file.read_checkpoint_file(path).state.get("epsilon")
    except checkpoint_file.InvalidCheckpoint:
        return None
    return epsilon if isinstance(epsilon, float) else None


def _read_optional(path: Path) -> pd.DataFrame | None:
    try:
        return read_table(path)
    except AbsentFile:
        return None


def _require_columns(path: Path, table: pd.DataFrame, names: Iterable[str]) -> None:
    for name in names:
        if name not in table:
            raise UnreadableFile(path, f"it has no column `{name}`")


def _require_numbers(path: Path, table: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise UnreadableFile unless the columns exist and contain only numbers and empty cells."""
    for name in names:
        _require_columns(path, table, (name,))
        if table[name].dtype.kind not in "iufb":
            raise UnreadableFile(path, f"column `{name}` has a cell that is not a number")


def _are_counts(values: pd.Series) -> bool:
    """Return whether all values are non-negative integers below LARGEST_COUNT."""
    numbers = values.to_numpy(float)
    in_range = np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers < LARGEST_COUNT).all()
    return bool(in_range) and bool((numbers == np.floor(numbers)).all())


COUNT = integer(at_least=0, example=0)
STATUS = {
    "state": text,
    "step": COUNT,
    "seconds": real(at_least=0, example=1),
    "dtype": choice(Dtype),
    "unmet": COUNT,
    "switched_at": optional(COUNT),
}
"""The keys of status.json that the views use, with their validators."""


RISK_FORMULAS = {
    "quadratic": "mean of (y − f)²",
    "logistic": "mean of log(1 + exp(−y f))",
    "cross_entropy": "mean cross-entropy",
    "huber": "mean Huber loss",
}
"""Formula or name of the risk for each loss, for the labels of plots."""


@dataclass(frozen=True)
class RunData:
    """The contents of the files in a run folder; optional files that do not exist yet are None."""

    path: Path
    config: dict[str, Any]
    status: dict[str, Any]
    model: dict[str, Any]
    metrics: pd.DataFrame
    accuracy: pd.DataFrame | None
    confusion: pd.DataFrame | None
    points: pd.DataFrame | None

    @property
    def results_step(self) -> int | None:
        """The step of ``accuracy`` and ``confusion``, or None if it is unknown or there are no results."""
        step: int | None = self.status["figures_step"] if self._has_results else None
        return step

    @property
    def results_note(self) -> str:
        """A note on the step of the results, or an empty string if the results belong to the newest step of the run."""
        if not self._has_results or self.results_step == self.status["step"]:
            return ""
        step = "an unknown earlier step" if self.results_step is None else f"step {self.results_step}"
        return f"results of {step}; the run is at step {self.status['step']}"

    @property
    def _has_results(self) -> bool:
        return self.accuracy is not None or self.confusion is not None

    @property
    def title(self) -> str:
        """The dataset and the main hyperparameters, as a string."""
        config = self.config
        # A relative epsilon is a multiple of a squared distance; without its unit, it would look like an absolute one.
        unit = "" if config.get("epsilon_quantile") is None else "×NN²"
        hyperparameters = f"β={config['beta']:g}, ε={config['epsilon']:g}{unit}"
        return f"{self.data_name}, {hyperparameters}, N={config['N']}"

    @property
    def data_name(self) -> str:
        """The name of the user's file, or of the dataset."""
        dataset = self.config["dataset"]
        name: str = dataset["name"] if dataset["name"] != "csv" else Path(str(dataset["path"])).name
        return name

    @property
    def selection_seconds(self) -> float | None:
        """The duration of the selection in seconds. The ``seconds`` in status.json do not include it.

        None if there was no selection, or if its duration is unknown.
        """
        with contextlib.suppress(AbsentFile):
            seconds = read_json(RunFolder(self.path).selection).get("seconds")
            return float(seconds) if isinstance(seconds, int | float) else None
        return None

    @property
    def risk_label(self) -> str:
        """The label of a risk axis; the loss is read from model.json, because the config need not specify a loss."""
        name = self.model["loss"]
        return f"risk: {RISK_FORMULAS.get(name, f'mean of the loss {name}')}"

    @property
    def kappa(self) -> float | None:
        """The ratio beta epsilon / h at the newest step; None if it is unknown or if the run has no proximal step.

        Runs of earlier versions did not store kappa. For such a run, kappa is computed from the config if h, beta and
        epsilon are constant.
        """
        config, stored = self.config, self.status.get("kappa")
        if config.get("weights", "proximal") != "proximal":
            return None
        if isinstance(stored, int | float) and 0 < stored < math.inf:
            return float(stored)
        schedules = {config.get(f"{name}_schedule", "constant") for name in ("h", "beta")}
        if config.get("epsilon_quantile") is not None or schedules != {"constant"}:
            return None
        return float(config["beta"] * config["epsilon"] / config["h"])

    @property
    def rounding_unit(self) -> float:
        """The unit roundoff of the precision in which the run ended."""
        return 2.0**-53 if self.status["dtype"] == "float64" else 2.0**-24


def read_run_data(path: Path) -> RunData:
    """Read the folder of a finished or running run; raise UnreadableFile if a file is damaged."""
    while True:
        run = _read(path)
        # A session that ended while the files were read may have replaced the results; the step of the results must be
        # the same before and after reading.
        if _read_status(RunFolder(path).status)["figures_step"] == run.status["figures_step"]:
            return run


def _read(path: Path) -> RunData:
    folder = RunFolder(path)
    try:
        status = _read_status(folder.status)
        config, model = _read_config(folder, status), read_description(folder.model)
        return RunData(
            path=path,
            config=config,
            status=status,
            model=model,
            metrics=read_metrics(folder.metrics, config),
            accuracy=read_accuracy(folder.accuracy),
            confusion=read_confusion(folder.confusion, len(model["classes"])),
            points=read_points(folder.points, model),
        )
    except AbsentFile as error:
        raise InputError(
            f"{path} is not a run folder: it has no {error.path.name}", "give a folder that `proxlearn train` created"
        ) from error


def _read_status(path: Path) -> dict[str, Any]:
    status = read_json(path)
    try:
        status |= {name: check(name, status.get(name)) for name, check in STATUS.items()}
        return status | {"figures_step": figures_step(status)}
    except InputError as error:
        raise UnreadableFile(path, error.problem) from error


def _read_config(folder: RunFolder, status: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a run with the selected hyperparameters; raise InputError if config.yaml was edited."""
    config = read_yaml(folder.config)
    stored = _build_config(folder, config)
    refuse_edited_settings(folder, stored, status)
    with contextlib.suppress(AbsentFile):
        config |= _read_selection(folder, config, stored, status)
    complete = _build_config(folder, config)
    if complete.selected:
        raise UnreadableFile(folder.selection, f"it has no value for {complete.selected[0]}")
    return config


def _read_selection(
    folder: RunFolder, config: dict[str, Any], stored: TrainConfig, status: dict[str, Any]
) -> dict[str, Any]:
    """Return the values in selection.json of the keys that have no value in the config.

    Raise InputError if the run used other values.
    """
    record = read_json(folder.selection)
    refuse_newer_format(folder.selection, record.get("format"), SELECTION_FORMAT)
    chosen = record.get("chosen")
    if not isinstance(chosen, dict):
        raise UnreadableFile(folder.selection, "it does not contain the selected values")
    selected = status.get("selected")
    used = selected if isinstance(selected, dict) else {}
    for key in stored.selected:
        if key in used and used[key] != chosen.get(key):
            problem = f"{folder.path} was trained with {key}={used[key]}, but selection.json has {chosen.get(key)}"
            raise InputError(problem, f"restore {key}={used[key]} in selection.json")
    return {key: value for key, value in chosen.items() if config.get(key) is None}


def _build_config(folder: RunFolder, config: dict[str, Any]) -> TrainConfig:
    try:
        with accept_any_name():
            return build(TrainConfig, config)
    except InputError as error:
        raise UnreadableFile(folder.config, error.problem) from error
