"""Functions that train a run in a folder, as the command line does, and that read run folders.

A run is described by a config, so it can be resumed, swept and compared. A config cannot contain a user-defined neuron
or loss; use such an object with ``proxlearn.iterate``, or register a name for it with ``proxlearn.neurons.register``,
``proxlearn.losses.register`` or an entry point of a package.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from proxlearn.core.cloud import PointCloud
from proxlearn.core.tasks import ESTIMATES
from proxlearn.errors import InputError, StoppedBySignal
from proxlearn.files.safe_read import absolute_folder, display_path, user_path
from proxlearn.predict.model import Model, Prediction, load_model
from proxlearn.run import checkpoint as checkpoints
from proxlearn.run.checkpoint_file import InvalidCheckpoint, checkpoint_path, list_checkpoints
from proxlearn.run.observers import StepEvent
from proxlearn.run.overwrite import refuse_interrupted
from proxlearn.run.resume_point import read_identity, require_same_run
from proxlearn.run.run_folder import RunFolder
from proxlearn.validators import callables
from proxlearn.views.run.run_data import RunData, read_run_data

__all__ = ["Clouds", "Run", "StepEvent", "load_run", "train"]


class Run:
    """A run folder, whose files are read on demand; the run may still be in progress in another process.

    Parameters
    ----------
    folder : str or Path
        A folder that ``train`` or ``proxlearn train`` wrote.

    Attributes
    ----------
    folder : Path
        The folder, as an absolute path.

    Examples
    --------
    >>> import proxlearn as pl
    >>> run = pl.train("dataset=sine", "N=20", "steps=10", "checkpoint_every=5", verbose=False, plots=False)
    >>> run.state, run.step, run.config["N"]
    ('finished', 10, 20)
    >>> list(run.clouds)
    [0, 1, 2, 3, 4, 5, 6, 10]
    >>> run.clouds[5]
    PointCloud(N=20, p=3, step=5, float32)
    >>> run.metrics[["step", "train_risk_weighted"]].shape[1]
    2
    >>> run.predict([[0.0], [1.0]]).shape
    (2,)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = absolute_folder(user_path("folder", os.fspath(folder)))
        if not self.folder.is_dir():
            raise InputError(f"the folder {folder} does not exist", "give a folder that `proxlearn train` created")
        refuse_interrupted(self.folder)
        # A folder without a run is rejected now, instead of when its contents are first used.
        RunFolder(self.folder).read_config()

    def __repr__(self) -> str:
        status = self.status
        return f"Run({display_path(self.folder)!r}, {status['state']} at step {status['step']})"

    @property
    def status(self) -> dict[str, Any]:
        """The content of status.json, such as the state, step, seconds, engine, threads, versions and error."""
        return self._data().status

    @property
    def state(self) -> str:
        """The state of the run, which is ``running``, ``finished``, ``stopped`` or ``failed``."""
        state: str = self.status["state"]
        return state

    @property
    def step(self) -> int:
        """The newest step recorded in status.json."""
        step: int = self.status["step"]
        return step

    @property
    def config(self) -> dict[str, Any]:
        """The settings as nested dictionaries, including the values that the selection chose."""
        return self._data().config

    @property
    def metrics(self) -> pd.DataFrame:
        """The rows of metrics.csv, one per logged step."""
        return self._data().metrics

    @property
    def clouds(self) -> Clouds:
        """The stored checkpoints as a mapping from step to PointCloud, in ascending order.

        Each cloud is read from its file when it is accessed.
        """
        return Clouds(RunFolder(self.folder))

    @property
    def cloud(self) -> PointCloud:
        """The newest cloud whose checkpoint is valid."""
        clouds = self.clouds
        for step in reversed(list(clouds)):
            with contextlib.suppress(CheckpointError):
                return clouds[step]
        raise InputError(f"{self.folder} contains no valid checkpoint", "wait for the first checkpoint, or train again")

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, or an empty tuple for a real target."""
        return load_model(self.folder).classes

    def predict(self, X: Any, estimate: str = "weighted") -> np.ndarray:
        """Predict the targets of rows with the newest cloud.

        Parameters
        ----------
        X : array-like or DataFrame, shape (n, n_x)
            Features in the units and the order of the training data; the columns of a DataFrame are matched by name.
        estimate : {"weighted", "unweighted"}, default="weighted"
            Mean over the particles with or without their weights.

        Returns
        -------
        ndarray, shape (n,) or (n, targets)
            Class names (as in ``classes``), or values in the units of the target.
        """
        model, prediction = self._predict(X, estimate)
        return np.array(model.classes)[prediction.predicted] if model.classes else prediction.predicted

    def predict_proba(self, X: Any, estimate: str = "weighted") -> np.ndarray:
        """Return the probabilities of the classes, shape (n, C), in the order of ``classes``.

        Parameters
        ----------
        X : array-like or DataFrame, shape (n, n_x)
            Features, as for ``predict``.
        estimate : {"weighted", "unweighted"}, default="weighted"
            Mean over the particles with or without their weights.

        Returns
        -------
        ndarray, shape (n, C)
            Probabilities in the order of ``classes``; each row sums to 1.
        """
        model, prediction = self._predict(X, estimate)
        if not model.classes:
            raise InputError("the target of this run is a real number, which has no classes", "use predict")
        return prediction.probabilities

    def _predict(self, X: Any, estimate: str) -> tuple[Model, Prediction]:
        if estimate not in ESTIMATES:
            raise InputError(f"unknown estimate {estimate!r}", f"choose from {', '.join(ESTIMATES)}")
        model = load_model(self.folder)
        return model, model.predict(model.read_rows(X), estimate)

    def _data(self) -> RunData:
        return read_run_data(self.folder)


class CheckpointError(InputError, KeyError):
    """Raised if a step has no valid checkpoint; also a KeyError, which a mapping such as ``Clouds`` should raise."""

    __str__ = Exception.__str__


class Clouds(Mapping[int, PointCloud]):
    """The stored clouds of a run by step; a cloud is read from its checkpoint when it is accessed."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(step for step, _ in list_checkpoints(self._folder.checkpoints)))

    def __len__(self) -> int:
        return len(list_checkpoints(self._folder.checkpoints))

    def __contains__(self, step: object) -> bool:
        return step in list(self)

    def __getitem__(self, step: int) -> PointCloud:
        if step not in self:
            steps = list(self)
            shown = ", ".join(map(str, steps[-10:]))
            remedy = f"choose from {'..., ' if len(steps) > 10 else ''}{shown}" if steps else "wait for a checkpoint"
            raise CheckpointError(f"{self._folder.path} has no checkpoint of step {step!r}", remedy)
        path = checkpoint_path(self._folder.checkpoints, step)
        try:
            checkpoint = checkpoints.load(path)
            require_same_run(checkpoint.run, read_identity(self._folder))
        except InvalidCheckpoint as error:
            raise CheckpointError(
                f"{path.name} is not a checkpoint of this run: {error}", "use another step"
            ) from error
        return checkpoint.cloud

    def __repr__(self) -> str:
        return f"Clouds(steps={list(self)})"


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Return the run in a folder; raise InputError if the folder contains no run.

    Parameters
    ----------
    folder : str or Path
        A folder that ``train`` or ``proxlearn train`` wrote.

    Returns
    -------
    Run

    Examples
    --------
    >>> import proxlearn as pl
    >>> folder = pl.train("dataset=sine", "N=20", "steps=10", verbose=False, plots=False).folder
    >>> pl.load_run(folder).cloud
    PointCloud(N=20, p=3, step=10, float32)
    """
    return Run(folder)


def train(
    *overrides: str,
    callbacks: Sequence[Callable[[StepEvent], object]] = (),
    plots: bool = True,
    verbose: bool = True,
) -> Run:
    """Train in a run folder, exactly as ``proxlearn train`` does with the same arguments.

    An existing run is continued, and a finished run is returned unchanged. The result is bit for bit the same as that
    of the command. The folder is ``outputs/<dataset>/<name>`` in the working directory, where the name consists of the
    main settings and a hash of all settings that affect the result. ``"hydra.run.dir=FOLDER"`` chooses another folder;
    ``run.folder`` is its path.

    Parameters
    ----------
    *overrides : str
        Arguments of the command line: ``"dataset=wdbc"``, ``"beta=0.05"``, ``"hydra.run.dir=FOLDER"``,
        ``"--config-dir=FOLDER"``.
    callbacks : sequence of callables, optional
        Functions that are called with a ``proxlearn.StepEvent`` (``step``, ``cloud``, ``info``, and ``row``, which is
        None if the step is not logged) for the initial cloud of a new run and after every step. If one returns a true
        value, a checkpoint is stored and the run stops, as after a signal; the same call continues the run and gives
        bit for bit the result of an uninterrupted run. If a callback raises an exception, the run fails; it can be
        continued from its last checkpoint. Callbacks are not stored.
    plots : bool, default=True
        Whether to draw the plots and tables into the folder, as the command does.
    verbose : bool, default=True
        Whether to print the summary, and to show progress on stderr.

    Returns
    -------
    Run
        The run, ``finished`` or ``stopped``.

    Raises
    ------
    InputError
        If the command would end with exit code 2.
    RunError
        If the run fails after it has started.

    Examples
    --------
    >>> import proxlearn as pl
    >>> run = pl.train("dataset=sine", "N=20", "steps=50", callbacks=[lambda event: event.step == 30], verbose=False)
    >>> run.state, run.step
    ('stopped', 30)
    >>> pl.train("dataset=sine", "N=20", "steps=50", verbose=False).step
    50
    """
    for word in overrides:
        if not isinstance(word, str):
            raise InputError(f"train takes command-line arguments as strings, got {word!r:.100}", 'write "beta=0.05"')
    callbacks = callables("callbacks", callbacks)
    # Hydra takes half a second to import, and reading a run does not need it.
    from proxlearn.commands.train import RunPlan, preflight
    from proxlearn.run.folder_recognition import nearest_existing_folder, remove_if_empty
    from proxlearn.train_and_draw import train_and_draw

    with _no_other_hydra():
        plan = preflight(list(overrides))
    if not isinstance(plan, RunPlan):
        if plan is None:
            raise InputError(
                "these arguments print information instead of starting a run", "use them with `proxlearn train`"
            )
        raise InputError(
            "a sweep has many runs, but train returns only one", "call train in a loop, or use `proxlearn train -m`"
        )
    command = shlex.join(["proxlearn", "train", *overrides])
    existing = nearest_existing_folder(plan.folder)
    try:
        with _same_torch_threads():
            outcome = train_and_draw(
                plan.config, plan.folder, command, callbacks=callbacks, plots=plots, verbose=verbose
            )
    except StoppedBySignal as stopped:
        signal.raise_signal(stopped.exit_code - 128)
        raise
    finally:
        # A run that fails while it reads its data leaves an empty folder.
        remove_if_empty(plan.folder, existing)
    if outcome.signal is not None:
        # The run is stored. The signal is raised again, so that Ctrl-C raises KeyboardInterrupt as in any program.
        signal.raise_signal(outcome.signal)
    return Run(plan.folder)


@contextlib.contextmanager
def _no_other_hydra() -> Iterator[None]:
    """Hide the Hydra instance of the calling program within the block, because only one can be active at a time."""
    from hydra.core.global_hydra import GlobalHydra

    hydra = GlobalHydra.instance()
    other, hydra.hydra = hydra.hydra, None
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = other


@contextlib.contextmanager
def _same_torch_threads() -> Iterator[None]:
    """Restore torch's number of threads, which a run changes, at the end of the block."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
