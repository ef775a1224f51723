"""The trials of `proxlearn search`, which are ordinary runs; Optuna's ask-and-tell interface chooses their values.

The study is a journal file in the folder. Every trial has a lock file, which is locked by the process that trains the
trial. If this process is killed, the trial is unfinished in the journal and its lock is free. The next process that
needs a trial then continues the run of this trial from its newest checkpoint. No trial is lost, and none is run twice.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from filelock import FileLock, Timeout

from proxlearn.config.compose import compose, parse
from proxlearn.config.run_name import settings_digest
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError, ProxlearnError, RunError, StoppedBySignal, did_you_mean
from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import AbsentFile, read_json
from proxlearn.jobs.job import JobStopped
from proxlearn.loggers.logger import read_rows
from proxlearn.run.config_validation import validate_config
from proxlearn.run.metric_definitions import ESTIMATES, SCORES, SINGLE_SCORES
from proxlearn.run.run_folder import RunFolder
from proxlearn.sweeps.search_space import Parameter, trial_overrides
from proxlearn.train_and_draw import train_and_draw

FORMAT = "proxlearn-search-1"
PRELOAD = ("proxlearn.sweeps.search", "proxlearn.run.train", "proxlearn.core.fused.fused_step", "optuna")
JOURNAL_LOCK = ".journal-lock"
VALIDATION_FRACTION = 0.25
POLL_SECONDS = 0.2
MAXIMISED = ("accuracy", "r2")
"""Metrics for which a larger value is better."""
STARTUP_TRIALS = 5
"""Number of complete trials before a trial can be pruned."""
Sampler = Literal["tpe", "random"]


@dataclass(frozen=True)
class SearchPlan:
    """The settings that determine a search; the number of trials can be raised later."""

    overrides: tuple[str, ...]
    """The fixed overrides of every trial."""
    space: tuple[Parameter, ...]
    metric: str
    """Column of metrics.csv whose last value is the score of a trial."""
    sampler: Sampler = "tpe"
    seed: int = 0
    prunes: bool = True

    @property
    def maximises(self) -> bool:
        return any(f"_{name}_" in self.metric for name in MAXIMISED)

    @property
    def identity(self) -> dict[str, Any]:
        """The plan as a dictionary of JSON values, which is stored in the folder of the search."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    @property
    def name(self) -> str:
        """The name of the folder: the searched keys, and a hash of the plan."""
        keys = "-".join(parameter.key for parameter in self.space)[:60]
        return f"{keys}-{settings_digest(self.identity)[:8]}"


def read_plan(folder: Path) -> SearchPlan:
    """Return the plan of the search in a folder."""
    values = read_json(folder / "search.json")
    if values.get("format") != FORMAT:
        raise InputError(f"{folder} contains a search of another version of proxlearn", "choose another folder with -o")
    space = tuple(Parameter(p["key"], p["kind"], tuple(p["values"])) for p in values["plan"].pop("space"))
    return SearchPlan(**{**values["plan"], "overrides": tuple(values["plan"]["overrides"]), "space": space})


def create_folder(folder: Path, plan: SearchPlan, command: str) -> None:
    """Write the plan into a new folder; raise InputError if the folder contains other files or another search."""
    try:
        stored = read_plan(folder)
    except AbsentFile:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} contains other files, but no search", "choose a new folder with -o") from None
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "search.json", {"format": FORMAT, "command": command, "plan": plan.identity})
        return
    if stored != plan:
        problem = f"{folder} contains a search with other settings"
        earlier = read_json(folder / "search.json").get("command")
        raise InputError(problem, f"choose a new folder with -o, or repeat its command: {earlier}")


def require_optuna() -> None:
    """Raise InputError if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise InputError(
            "`proxlearn search` needs the package optuna, which is not installed",
            "run `pip install 'proxlearn[search]'`",
        )


class JournalLock:
    """A lock on Optuna's journal file; the operating system releases the lock of a process that is killed."""

    def __init__(self, folder: Path) -> None:
        self._lock = FileLock(folder / JOURNAL_LOCK)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def load_study(folder: Path, plan: SearchPlan) -> Any:
    """Return the Optuna study in a folder; create its file if necessary."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / "study.journal"
    with FileLock(folder / JOURNAL_LOCK):
        path.touch()
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            # A killed process has left an incomplete line, which is removed before the next line is written.
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=10)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(path), lock_obj=cast(Any, JournalLock(folder)))),
        study_name="search",
        direction="maximize" if plan.maximises else "minimize",
        pruner=pruner if plan.prunes else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


def unfinished(study: Any) -> list[Any]:
    """Return the trials of a study that were started but have no result yet."""
    return [trial for trial in study.get_trials(deepcopy=False) if not trial.state.is_finished()]


def trial_folder(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:04d}"


@contextlib.contextmanager
def claimed_trial(folder: Path, study: Any, plan: SearchPlan, trials: int) -> Iterator[Any]:
    """Yield an unfinished trial that no other process trains, or a new trial, or None if all trials are finished."""
    from optuna.trial import Trial

    lock: FileLock | None = None
    trial: Any = None
    while lock is None:
        with FileLock(folder / ".ask-lock"):
            for candidate in unfinished(study):
                lock = _try_lock(folder, candidate.number)
                if lock is not None:
                    study.sampler = sampler_of(plan, candidate.number)
                    trial = Trial(study, candidate._trial_id)
                    break
            else:
                number = len(study.get_trials(deepcopy=False))
                if number < trials:
                    study.sampler = sampler_of(plan, number)
                    trial = study.ask()
                    suggested_values(trial, plan)
                    lock = _try_lock(folder, trial.number)
                elif not unfinished(study):
                    break
        if lock is None:
            # Other processes run the last trials. If one of them is killed, this process continues its trial.
            time.sleep(POLL_SECONDS)
    try:
        yield trial
    finally:
        if lock is not None:
            lock.release()


def _try_lock(folder: Path, number: int) -> FileLock | None:
    lock = FileLock(folder / f".trial-{number:04d}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def sampler_of(plan: SearchPlan, *place: int) -> Any:
    """Return a sampler that is seeded by ``place``: the number of the trial and, if given, that of the parameter.

    A sampler that starts again after a kill would otherwise repeat the values of the first trials, and a trial that
    was killed before all of its values were drawn would get different values.
    """
    import optuna

    seed = int(np.random.SeedSequence([plan.seed, *place]).generate_state(1)[0])
    random = optuna.samplers.RandomSampler(seed=seed)
    return random if plan.sampler == "random" else optuna.samplers.TPESampler(seed=seed)


def suggested_values(trial: Any, plan: SearchPlan) -> dict[str, str]:
    """Return the values of a trial by key, as strings; values that are stored in the study are not drawn again."""
    values: dict[str, str] = {}
    for i, parameter in enumerate(plan.space):
        trial.study.sampler = sampler_of(plan, trial.number, i)
        values[parameter.key] = parameter.suggest(trial)
    return values


def trial_config(plan: SearchPlan, values: Mapping[str, str]) -> TrainConfig:
    """Return the config of a trial."""
    return validate_config(compose(parse(trial_overrides(plan.overrides, values))))


def run_trial(folder: Path, trials: int, command: str) -> dict[str, Any] | None:
    """Train one trial of the search in ``folder`` and report its score; return None if all trials are finished."""
    plan = read_plan(folder)
    study = load_study(folder, plan)
    with claimed_trial(folder, study, plan, trials) as trial:
        if trial is None:
            return None
        try:
            return _train_trial(folder, plan, study, trial, command)
        except (JobStopped, StoppedBySignal):
            raise
        except (RunError, InputError) as error:
            # A trial has no score if its run diverges or its combination of values is rejected.
            trial.set_user_attr("error", str(error))
            study.tell(trial.number, state=_state("FAIL"))
            return {"trial": trial.number, "score": None}


def _train_trial(folder: Path, plan: SearchPlan, study: Any, trial: Any, command: str) -> dict[str, Any]:
    config = trial_config(plan, suggested_values(trial, plan))
    place = trial_folder(folder, trial.number)
    reported = set(_frozen(study, trial.number).intermediate_values)
    pruned = False

    def report(event: Any) -> bool:
        nonlocal pruned
        if event.row is None or not plan.prunes:
            return False
        score = event.row.get(plan.metric)
        if score is None:
            names = ", ".join(_metrics(event.row))
            raise InputError(f"the runs have no metric {plan.metric}", f"choose --metric from {names}")
        if not math.isfinite(score):
            raise RunError(f"{plan.metric} is not finite at step {event.step}", "search smaller ranges")
        if event.step not in reported:
            trial.report(float(score), event.step)
        pruned = event.step > 0 and bool(trial.should_prune())
        return pruned

    outcome = train_and_draw(config, place, command, callbacks=[report], plots=False, verbose=False)
    if outcome.signal is not None:
        raise JobStopped(f"stopped at step {outcome.step}", outcome.signal)
    rows = read_rows(RunFolder(place).metrics)
    score = _score(rows, plan.metric)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if pruned:
            study.tell(trial.number, state=_state("PRUNED"))
        else:
            study.tell(trial.number, score)
    return {"trial": trial.number, "score": score}


def _score(rows: Sequence[Mapping[str, Any]], metric: str) -> float:
    score = rows[-1].get(metric) if rows else None
    if score is None:
        names = ", ".join(_metrics(rows[-1])) if rows else "none"
        raise InputError(f"the runs have no metric {metric}", f"choose --metric from {names}")
    if not math.isfinite(score):
        raise RunError(f"{metric} is not finite at the last step", "search smaller ranges")
    return float(score)


def _metrics(row: Mapping[str, Any]) -> list[str]:
    return [name for name in row if name.startswith("validation_")]


def _frozen(study: Any, number: int) -> Any:
    return study.get_trials(deepcopy=False)[number]


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]


def check_metric(config: TrainConfig, metric: str | None) -> str:
    """Return the metric of a search, by default the log-loss for classes and the RMSE for a real target.

    Raise InputError if the runs do not have this metric, or if the data cannot be split into the parts of a trial.
    """
    from proxlearn.data import registry
    from proxlearn.data.prepare import prepare

    try:
        table = registry.load(config.dataset)
        prepare(table, config.dataset, config.split_seed, config.validation_fraction)
    except ProxlearnError as error:
        raise InputError(error.problem, error.remedy) from error
    of_real_target = ("rmse", "r2")
    is_real = table.task == "regression"
    scores = ("risk", *of_real_target) if is_real else tuple(name for name in SCORES if name not in of_real_target)
    names = [f"validation_{score}_{estimate}" for score in scores for estimate in ESTIMATES]
    names += [] if is_real else [f"validation_{name}" for name in SINGLE_SCORES]
    metric = metric or f"validation_{'rmse' if is_real else 'log_loss'}_weighted"
    if metric not in names:
        if not metric.startswith("validation_"):
            problem = f"--metric {metric} is not a metric of the validation rows"
            raise InputError(problem, did_you_mean(f"validation_{metric.removeprefix('test_')}", names))
        raise InputError(f"the runs have no metric {metric}", did_you_mean(metric, names))
    return metric
