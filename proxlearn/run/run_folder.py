"""The run folder: the names of its files, functions for its small files, and the detection of edited settings.

The run folder is the only interface between a run and every command that reads its results later.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from proxlearn.config.run_name import digest, flat_settings, settings_digest, trajectory
from proxlearn.config.schema import TrainConfig, build, config_values
from proxlearn.core.registry import UnknownPart
from proxlearn.errors import InputError, refuse_newer_format
from proxlearn.files.atomic import remove_temporaries, write_atomically, write_json
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json, read_yaml
from proxlearn.loggers.logger import EVENTS_FOLDER, RUN_ID_FILE, WANDB_FILE
from proxlearn.run import checkpoint_file
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints, list_shards, read_checkpoint_file
from proxlearn.run.previous_session import PreviousSession, retention_settings

DIGEST_LENGTH = 64
"""Length of the digest of the settings. The identity of a run begins with this digest; the digest of the data follows.
"""


def refuse_edited_settings(folder: RunFolder, config: TrainConfig, status: Mapping[str, Any]) -> None:
    """Raise InputError if ``config``, read from config.yaml, is not the config that the run started with.

    Runs of version 0.1.0 do not store their settings in status.json; for them, the identity in a checkpoint is
    compared.
    """
    original_digest = status.get("settings_sha256")
    if not isinstance(original_digest, str):
        original_digest = _digest_in_checkpoints(folder, digest(config))
    if original_digest in (None, digest(config)):
        return
    difference = describe_difference(config, status.get("settings"), original_digest)
    if difference is None:
        raise InputError(f"{folder.config} was edited after the run started", "undo the edit of this file")
    original, present = difference
    if not original:
        # The values are equal but written differently, such as 1 and 1.0.
        return
    problem = f"the run in {folder.path} started with {original}, but config.yaml has {present}"
    raise InputError(problem, "undo the edit of config.yaml")


def describe_difference(config: TrainConfig, stored: Any, original_digest: str) -> tuple[str, str] | None:
    """Return the settings that differ, as two strings: with the original values, and with the values in ``config``.

    ``stored`` contains the settings in status.json. Return None if ``original_digest`` is not their digest, because the
    original values are then unknown.
    """
    if not isinstance(stored, dict) or settings_digest(stored) != original_digest:
        return None
    original, present = flat_settings(stored), flat_settings(trajectory(config))
    names = [key for key in {**original, **present} if original.get(key) != present.get(key)]
    return _format_settings(names, original), _format_settings(names, present)


def _digest_in_checkpoints(folder: RunFolder, expected: str) -> str | None:
    """Return ``expected`` if a checkpoint has this digest, and otherwise the digest of the newest checkpoint.

    If there are no checkpoints, return None.
    """
    newest = None
    for file in checkpoint_file.valid_checkpoints(folder.checkpoints):
        settings_part = str(file.state.get("run"))[:DIGEST_LENGTH]
        if settings_part == expected:
            return settings_part
        newest = newest or settings_part
    return newest


def _format_settings(names: list[str], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values.get(name)}" for name in names[:4]) + (", ..." if len(names) > 4 else "")


MODEL_FORMAT = "proxlearn-model-3"
PLAIN_MODEL_FORMAT = "proxlearn-model-2"
"""The format of a model whose features are unchanged columns of numbers; earlier versions can also read it."""
SELECTION_FORMAT = "proxlearn-selection-1"
CANDIDATE_NAME = re.compile(r"selection-\d+-\d+\.safetensors")
"""Pattern that matches the names of candidate files, which an interrupted selection leaves next to the checkpoints."""
FILE_CONTENTS = {
    "config.yaml": "resolved config; keys that `recipe=tuned` selects are null in it",
    "selection.json": "with `recipe=tuned`: the selected values, the candidates and their scores",
    "status.json": "state (running, finished, stopped, failed), step, selected values, seconds, engine, precision, "
    "threads, versions, sha256 of the data, command",
    "metrics.csv": "one row of metrics per logged step",
    "metrics-marks.json": "for a run of version 0.1.0: positions in the old metrics.csv and in the converted one",
    "accuracy.csv": "scores of the newest cloud, machine-readable",
    "accuracy.md": "scores of the newest cloud, as a readable table",
    "confusion.csv": "confusion matrices, for classification; the classes have the numbers 0, 1, ... in the order in "
    "which model.json lists them",
    "model.json": "neuron, scaling, columns and classes; with a checkpoint, all that a prediction needs",
    "points.csv": "data with one or two features: the points in the plots",
    "train.log": "sessions, warnings and errors",
    RUN_ID_FILE: "with `logger=mlflow`: the id of the run in MLflow",
    WANDB_FILE: "with `logger=wandb`: the id of the run in wandb, and its last logged step",
}
"""The content of each file that training writes into the run folder; plots, checkpoints, candidates of a selection and
event files are not listed.
"""
PLOT_CONTENTS = {
    "risk": "risk of both estimates over the recursions",
    "health": "effective sample size, and largest share of mass that a particle sends to others",
    "confusion": "confusion matrices, for classes",
    "function": "learned function, for data with one feature",
    "regions": "decision regions, for data with two features",
    "images": "input weights of particles as images, for digits",
}
PLOT_NAMES = tuple(PLOT_CONTENTS)
PLOT_ENDINGS = ("png", "pdf")
PLOTS = frozenset(f"{name}.{ending}" for name in PLOT_NAMES for ending in PLOT_ENDINGS)
RUN_FILES = frozenset((*FILE_CONTENTS, *PLOTS))
"""Names of the files, including plots, that training writes directly into the run folder, not into a subfolder."""


class RunFolder:
    """The paths of the files in a run folder, and methods that read and write the small files."""

    def __init__(self, path: Path, require_held: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.require_held = require_held
        """Function that raises an error if this process has lost the folder's lock; called before a file is written."""
        self.config = path / "config.yaml"
        self.status = path / "status.json"
        self.metrics = path / "metrics.csv"
        self.marks = path / "metrics-marks.json"
        self.model = path / "model.json"
        self.accuracy = path / "accuracy.csv"
        self.confusion = path / "confusion.csv"
        self.points = path / "points.csv"
        self.selection = path / "selection.json"
        self.log = path / "train.log"
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / EVENTS_FOLDER
        self.mlflow = path / RUN_ID_FILE

    def create(self, config: TrainConfig) -> None:
        """Create the folder, delete unfinished files that killed processes left, and write config.yaml."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.checkpoints):
            remove_temporaries(folder)
        # `overwrite` applies only to this command; a later command that reads config.yaml continues the run.
        values = config_values(dataclasses.replace(config, overwrite=False))
        text = yaml.safe_dump(json.loads(json.dumps(values)), sort_keys=False)
        if config.selected:
            keys = ", ".join(config.selected)
            text = f"# {keys}: null here, selected on the training part; status.json contains their values.\n{text}"
        write_atomically(self.config, text.encode())

    def run_files(self) -> list[Path]:
        """Return the files that the run wrote; status and config, which identify a run folder, are last."""
        stored = (*list_shards(self.checkpoints), *list_checkpoints(self.checkpoints))
        checkpoints = (path for _, path in stored)
        candidates = filter(_is_candidate, list_candidates(self.checkpoints))
        markers = (self.status, self.config)
        named = (self.path / name for name in sorted(RUN_FILES - PLOTS - {path.name for path in markers}))
        events = self.tensorboard.glob("*tfevents*")
        paths = (*checkpoints, *candidates, *named, *self._plots(), *events, *markers)
        return [path for path in paths if path.is_file() or path.is_symlink()]

    def _plots(self) -> Iterator[Path]:
        """Yield the plots that the run drew in both formats; a plot in only one format belongs to the user."""
        for name in PLOT_NAMES:
            paths = [self.path / f"{name}.{ending}" for ending in PLOT_ENDINGS]
            if all(path.is_file() and b"Matplotlib" in path.read_bytes() for path in paths):
                yield from paths

    def read_config(self) -> TrainConfig:
        """Return the validated config of the run; raise InputError if config.yaml is missing or unreadable."""
        try:
            return build(TrainConfig, read_yaml(self.config))
        except AbsentFile as error:
            raise InputError(
                f"{self.path} is not a run folder: it has no config.yaml",
                "give a folder that `proxlearn train` created",
            ) from error
        except UnknownPart as error:
            raise InputError(f"{self.config}: {error.problem}", error.how_to_add) from error
        except InputError as error:
            reason = error.why if isinstance(error, UnreadableFile) else error.problem
            remedy = "correct it, or train again with overwrite=true"
            raise UnreadableFile(self.config, reason, remedy) from error

    def read_previous_session(self) -> PreviousSession:
        """Return the record of the earlier sessions, which is empty if status.json is missing or damaged."""
        try:
            status = read_json(self.status)
            return PreviousSession.from_status(status, None if "retention" in status else self._config_retention())
        except (KeyError, TypeError, InputError):
            return PreviousSession()

    def _config_retention(self) -> dict[str, Any] | None:
        """Return the retention settings in config.yaml, or None if the file is not valid.

        The status.json of version 0.1.0 does not contain these settings.
        """
        try:
            return retention_settings(self.read_config())
        except InputError:
            return None

    def protected_steps(self, config: TrainConfig, previous: PreviousSession) -> frozenset[int]:
        """Return the steps of the checkpoints that a session with ``config`` must not delete.

        If the retention settings have not changed, checkpoints of earlier sessions can be deleted like those of this
        session. If they have changed, no existing checkpoint may be deleted.
        """
        if previous.retention == retention_settings(config):
            return previous.protected
        return frozenset(step for step, _ in list_checkpoints(self.checkpoints))

    def refuse_newer_model(self) -> None:
        """Raise NewerFormat if model.json was written by a newer version, because every session rewrites this file."""
        try:
            description = read_json(self.model)
        except UnreadableFile:
            return
        refuse_newer_format(self.model, description.get("format"), MODEL_FORMAT)

    def write_status(self, status: dict[str, Any]) -> None:
        """Write status.json; raise FolderLost if this process has lost the lock of the folder."""
        self.require_held()
        write_json(self.status, status)

    def check_same_run(self, config: TrainConfig) -> None:
        """Raise InputError if the folder contains a run with different settings."""
        if self.config.exists() and trajectory(self.read_config()) != trajectory(config):
            raise InputError(
                f"{self.path} contains a run with other settings",
                "choose another folder, or set overwrite=true (`fit`: --set overwrite=true)",
            )

    def refuse_links(self) -> None:
        """Raise InputError if the folder has links or devices, or folders with the names of run files.

        Writing to a link would change a file outside the run folder.
        """
        for folder in (self.path, self.checkpoints):
            for entry in folder.iterdir() if folder.is_dir() else ():
                if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
                    raise InputError(f"{entry} is a link or a device", "remove it from the run folder")
        for name in RUN_FILES:
            if (self.path / name).is_dir():
                problem = f"{self.path / name} is a folder, but the run writes a file with that name"
                raise InputError(problem, "rename it, or choose another run folder")


def list_candidates(folder: Path) -> list[Path]:
    """Return the files of an interrupted selection, identified by their names."""
    return [path for path in folder.glob("selection-*") if CANDIDATE_NAME.fullmatch(path.name)]


def _is_candidate(path: Path) -> bool:
    """Return whether a file stores a candidate of a selection."""
    try:
        return "key" in read_checkpoint_file(path, named=False).state
    except (InvalidCheckpoint, InputError):
        return False
