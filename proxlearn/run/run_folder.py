"""The run folder: the only thing that passes between a run and whoever looks at it later."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from proxlearn.config.schema import THREADS, Engine, TrainConfig, build, trajectory
from proxlearn.errors import InputError, refuse_newer_format
from proxlearn.files.atomic import break_hard_links, remove_temporaries, write_atomically, write_json
from proxlearn.files.safe_read import AbsentFile, UnreadableFile, read_json, read_yaml
from proxlearn.loggers.logger import EVENTS_FOLDER, RUN_ID_FILE
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints, read_checkpoint_file
from proxlearn.text import printable
from proxlearn.validators import choice, integer, optional, real

MODEL_FORMAT = "proxlearn-model-1"
SELECTION_FORMAT = "proxlearn-selection-1"
CANDIDATE_NAME = re.compile(r"selection-\d+-\d+\.safetensors")
"""Beside the checkpoints: candidates of a selection that was interrupted (selection_store.py)."""


@dataclass(frozen=True)
class PreviousSession:
    """What a run knows of its earlier sessions."""

    finished_at: int | None = None
    """The last step, if the run came to its end."""
    seconds: float = 0.0
    threads: int | None = None
    data_sha256: str | None = None
    engine: str | None = None
    step: int = 0
    steps: int = 0
    """The largest number of steps that was ever asked for."""
    run: str | None = None
    """Identity of the run (Experiment.identity)."""
    settings: dict[str, Any] | None = None
    """What determines the trajectory, as it was when the run began: names the settings that were edited since."""
    figures_step: int | None = None
    """The step whose figures accuracy.csv and confusion.csv hold; None where it is not known."""
    retention: dict[str, Any] | None = None
    """Which checkpoints the newest session wrote and kept (``retention_settings``); None where that is not known."""
    protected: frozenset[int] = frozenset()
    """Steps of the checkpoints that were stored under other such settings: no session deletes them."""


def retention_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings by which checkpoints are written and deleted."""
    return {key: getattr(config, key) for key in ("checkpoint_every", "keep_checkpoints", "films")}


PLOT_NAMES = ("risk", "health", "confusion", "function", "regions", "images")
PLOT_ENDINGS = ("png", "pdf")
PLOTS = frozenset(f"{name}.{ending}" for name in PLOT_NAMES for ending in PLOT_ENDINGS)
RUN_FILES = frozenset(
    (
        *("config.yaml", "status.json", "metrics.csv", "model.json", "accuracy.csv", "confusion.csv", "points.csv"),
        *("selection.json", "train.log", RUN_ID_FILE, "accuracy.md", "metrics-marks.json"),
        *PLOTS,
    )
)
"""Every file that training writes into its folder, checkpoints and event files aside."""


class QuietFileHandler(logging.FileHandler):
    """A log that cannot be written (a full disk) is no reason for a traceback: the run itself tells of it."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


class TerminalFormatter(logging.Formatter):
    """One line without control characters, whatever a file that a message quotes may hold."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class RunFolder:
    """Names of the files, and the reading and writing of the small ones."""

    def __init__(self, path: Path, require_held: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.require_held = require_held
        """Raises where the folder is no longer this process's: called before anything is written to it by name."""
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
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, self.checkpoints):
            remove_temporaries(folder)
        # `overwrite` was for this once: whoever reads the config later wants to go on.
        values = dataclasses.asdict(dataclasses.replace(config, overwrite=False))
        text = yaml.safe_dump(json.loads(json.dumps(values)), sort_keys=False)
        if config.selected:
            keys = ", ".join(config.selected)
            text = f"# {keys}: null here, selected from the training part; status.json has their values.\n{text}"
        write_atomically(self.config, text.encode())

    def run_files(self) -> list[Path]:
        """The run's own files; the status and the config last, by which a run folder is recognised."""
        stored_clouds = (path for _, path in list_checkpoints(self.checkpoints))
        named = (self.path / name for name in sorted(RUN_FILES - PLOTS - {self.status.name, self.config.name}))
        kept = filter(_is_candidate, list_candidates(self.checkpoints))
        logged = self.tensorboard.glob("*tfevents*")
        last = (self.status, self.config)
        paths = (*stored_clouds, *kept, *named, *self._plots(), *logged, *last)
        return [path for path in paths if path.is_file() or path.is_symlink()]

    def _plots(self) -> Iterator[Path]:
        """Plots that were drawn here: a user's file may have such a name, but not both files of a plot."""
        for name in PLOT_NAMES:
            both = [self.path / f"{name}.{ending}" for ending in PLOT_ENDINGS]
            if all(path.is_file() and b"Matplotlib" in path.read_bytes() for path in both):
                yield from both

    def read_config(self) -> TrainConfig:
        try:
            return build(TrainConfig, read_yaml(self.config))
        except AbsentFile as error:
            raise InputError(
                f"{self.path} is not a run folder: no config.yaml in it", "name one `train` made"
            ) from error
        except InputError as error:
            why = error.why if isinstance(error, UnreadableFile) else error.problem
            remedy = "put it right, or start again with overwrite=true"
            raise UnreadableFile(self.config, why, remedy) from error

    def read_previous_session(self) -> PreviousSession:
        """What status.json says of earlier sessions; a damaged one says nothing, and the checkpoints count."""
        try:
            status = read_json(self.status)
            step, seconds, threads, data = (status[key] for key in ("step", "seconds", "threads", "data_sha256"))
            return PreviousSession(
                finished_at=integer(at_least=0, example=0)("step", step) if status["state"] == "finished" else None,
                seconds=real(at_least=0, example=0)("seconds", seconds),
                threads=THREADS("threads", threads),
                data_sha256=str(data),
                engine=choice(Engine)("engine", status["engine"]),
                step=integer(at_least=0, example=0)("step", step),
                steps=integer(at_least=0, example=0)("steps", status.get("longest_steps", status["steps"])),
                run=str(status["run"]) if "run" in status else None,
                settings=status["settings"] if isinstance(status.get("settings"), dict) else None,
                figures_step=figures_step(status),
                retention=status["retention"] if "retention" in status else self._retention(),
                protected=frozenset(integer(at_least=0, example=0)("step", k) for k in status.get("protected", ())),
            )
        except (KeyError, TypeError, InputError):
            return PreviousSession()

    def _retention(self) -> dict[str, Any] | None:
        """Runs of earlier versions have it in their config only."""
        try:
            return retention_settings(self.read_config())
        except InputError:
            return None

    def protected_steps(self, config: TrainConfig, earlier: PreviousSession) -> frozenset[int]:
        """Steps of the checkpoints that a session with ``config`` must not delete.

        Under unchanged settings those of earlier sessions are as good as its own; under others every one stays, for
        whoever asked for it.
        """
        if earlier.retention == retention_settings(config):
            return earlier.protected
        return frozenset(step for step, _ in list_checkpoints(self.checkpoints))

    def refuse_newer_model(self) -> None:
        """Refuse a folder whose model.json a later version wrote; it is rewritten by every session."""
        try:
            described = read_json(self.model)
        except UnreadableFile:
            return
        refuse_newer_format(self.model, described.get("format"), MODEL_FORMAT)

    def write_status(self, status: dict[str, Any]) -> None:
        self.require_held()
        write_json(self.status, status)

    def check_same_run(self, config: TrainConfig) -> None:
        """Refuse to continue another run's folder."""
        if self.config.exists() and trajectory(self.read_config()) != trajectory(config):
            raise InputError(
                f"{self.path} holds a run with other settings", "choose another folder, or set overwrite=true"
            )

    def refuse_links(self) -> None:
        """Refuse links, devices and folders where files are expected: writing to a link would leave the folder."""
        for folder in (self.path, self.checkpoints):
            for entry in folder.iterdir() if folder.is_dir() else ():
                if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
                    raise InputError(f"{entry} is neither a file nor a folder", "remove it from the run folder")
        for name in RUN_FILES:
            if (self.path / name).is_dir():
                problem = f"{self.path / name} is a folder, and the run has a file of that name"
                raise InputError(problem, "rename it, or choose another folder")

    def journal(self) -> logging.Logger:
        """A logger of this run's own: everything into train.log, warnings to the terminal too."""
        logger = logging.Logger("proxlearn.run")
        break_hard_links(self.log)
        file = QuietFileHandler(self.log, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(file)
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setLevel(logging.WARNING)
        terminal.setFormatter(TerminalFormatter("proxlearn: %(message)s"))
        logger.addHandler(terminal)
        return logger


def figures_step(status: Mapping[str, Any]) -> int | None:
    """The step whose figures accuracy.csv and confusion.csv hold, from status.json; None where it is not known.

    Both are written at the end of a session: while the next one runs, or after it was killed, they are of an older
    step than the run. Earlier versions did not store it; their figures are of the newest step where a session ended.
    """
    ended = status.get("state") in ("finished", "stopped")
    step = status.get("figures_step", status.get("step") if ended else None)
    checked: int | None = optional(integer(at_least=0, example=0))("figures_step", step)
    return checked


def list_candidates(folder: Path) -> list[Path]:
    """The files of an interrupted selection, by their names."""
    return [path for path in folder.glob("selection-*") if CANDIDATE_NAME.fullmatch(path.name)]


def _is_candidate(path: Path) -> bool:
    try:
        return "key" in read_checkpoint_file(path, named=False).state
    except (InvalidCheckpoint, InputError):
        return False


def check_writable(path: Path, remedy: str = "choose another hydra.run.dir") -> None:
    """Refuse an output folder that could not be created, before anything is."""
    existing = path
    try:
        while not existing.exists() and existing != existing.parent:
            if existing.is_symlink():
                raise InputError(f"{existing}, needed for the run folder {path}, is a link to nothing", remedy)
            existing = existing.parent
        usable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        # A name that is too long, or has a zero byte in it.
        raise InputError(f"the run folder's name {str(path)!r:.100} is not possible here", remedy) from error
    if not usable:
        raise InputError(f"cannot write to {existing}, needed for the run folder {path}", remedy)


def nearest_existing_folder(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), Path("/"))


def remove_if_empty(path: Path, existing: Path) -> None:
    """Remove a folder in which nothing was stored, and its empty parents, below ``existing``, which stays."""
    for folder in (path, *path.parents):
        if folder == existing or not folder.is_relative_to(existing):
            return
        try:
            folder.rmdir()
        except OSError:
            return
