"""The base of the estimators: parameters and their checks, selection and training, and the fitted state."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from proxlearn.config import schema
from proxlearn.core.cloud import PointCloud
from proxlearn.core.problem import Problem
from proxlearn.core.thread_limit import usable_threads
from proxlearn.data.magnitude import check_scaled, check_scaler, max_scaled_magnitude
from proxlearn.data.scaling import Scaler
from proxlearn.errors import InputError
from proxlearn.predict.model import Model, Prediction
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import Selection, select
from proxlearn.training.trainer import FitInterrupted, FitState, fit

Callback = Callable[[dict[str, float], PointCloud], None]
CHECKS = {
    field.name: schema.setting_check(field)
    for cls in (schema.DeviceConfig, schema.TrainConfig)
    for field in dataclasses.fields(cls)
}
"""The checks of the command line, which apply to the parameters, too."""
SELECTED = ("steps", "beta", "h", "epsilon", "init_scale")
"""Parameters for which None means that selection chooses the value; for others None is a value."""

PARAMETERS = """\
    Parameters that are None are chosen by the selection of recipe=tuned, which uses the rows given to ``fit`` alone: it
    trains candidates on three quarters of them and compares their risks on the last quarter. A fit with all parameters
    given is faster; in a search such as GridSearchCV, give the parameters that it does not vary.

    Parameters
    ----------
    N : number of particles (neurons).
    steps : recursions of a fit; with ``warm_start``, further recursions of each further fit.
    beta, h, epsilon : inverse temperature, step size, entropic regularisation of the proximal step.
    epsilon_quantile : epsilon is a multiple of this quantile of the squared distances between nearest particles; None:
        epsilon is absolute.
    init_scale : s of the initial cloud, a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / features).
    weights : "proximal", "uniform" (the weights stay) or "fisher_rao" (multiplicative).
    resample, ess_threshold : "systematic" resamples the particles when their effective number falls below this share.
    h_schedule, beta_schedule, horizon : "constant", "cosine" or "power": schedule of the step size and of the
        temperature over ``horizon`` recursions.
    batch_size : rows per recursion, drawn with replacement; None: all rows.
    dtype : precision of the recursion; predictions use float64.
    threads : maximum number of threads of fits and predictions; None: as many as torch uses.
    warm_start : ``fit`` continues from the cloud of the last fit, with its scalings and its selected values.
    random_state : seed of initial cloud, noise and selection; an integer means the same as `seed=` on the command line.
    verbose : show progress on stderr.
    callbacks : functions that are called at every logged step with its row of ``history_`` and the cloud.

    Attributes
    ----------
    particles_ : (N, p) parameters of the neurons, one row per neuron.
    weights_ : (N,) their weights, summing to 1.
    history_ : number, risk, effective sample size, h, beta and epsilon of each logged step.
    settings_ : all settings of the fit; selection_ : the candidates and their validation risks.
    n_steps_ : number of recursions so far.
"""
"""The part of the docstring that both estimators share; each adds its own summary and attributes."""


class ProxLearn(BaseEstimator):  # type: ignore[misc]
    """A cloud of weighted particles, one neuron each, trained by proximal mean field learning."""

    _fitted: FitState
    _model: Model
    _seed: int
    _interrupted: bool
    _selection: Selection | None
    """The selection of this fit; None where nothing was selected or an earlier fit was continued."""
    settings_: dict[str, Any]
    selection_: list[dict[str, Any]]

    def __init__(
        self,
        *,
        N: int = 500,
        steps: int | None = None,
        beta: float | None = None,
        h: float | None = None,
        epsilon: float | None = None,
        epsilon_quantile: float | None = 0.5,
        init_scale: float | None = None,
        weights: str = "proximal",
        resample: str = "none",
        ess_threshold: float = 0.5,
        h_schedule: str = "constant",
        beta_schedule: str = "constant",
        horizon: int = 1000,
        batch_size: int | None = None,
        dtype: str = "float32",
        threads: int | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.N = N
        self.steps = steps
        self.beta = beta
        self.h = h
        self.epsilon = epsilon
        self.epsilon_quantile = epsilon_quantile
        self.init_scale = init_scale
        self.weights = weights
        self.resample = resample
        self.ess_threshold = ess_threshold
        self.h_schedule = h_schedule
        self.beta_schedule = beta_schedule
        self.horizon = horizon
        self.batch_size = batch_size
        self.dtype = dtype
        self.threads = threads
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @property
    def particles_(self) -> np.ndarray:
        theta: np.ndarray = self._cloud().theta.numpy()
        return theta

    @property
    def weights_(self) -> np.ndarray:
        shares: np.ndarray = torch.softmax(self._cloud().log_rho, dim=0).numpy()
        return shares

    @property
    def history_(self) -> list[dict[str, float]]:
        check_is_fitted(self)
        return list(self._fitted.history)

    @property
    def n_steps_(self) -> int:
        return self._cloud().step

    def _cloud(self) -> PointCloud:
        check_is_fitted(self)
        return self._model.cloud

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def _settings(self) -> Settings:
        """Return the parameters as settings, checked like the keys of the command line."""
        names = [field.name for field in dataclasses.fields(Settings) if hasattr(self, field.name)]
        with _value_errors():
            values: dict[str, Any] = {name: CHECKS[name](name, _plain(getattr(self, name))) for name in names}
        return Settings(**values)

    def _scaled(self, X: np.ndarray, scaler: Scaler, name: Callable[[int], str]) -> torch.Tensor:
        """Return the scaled numbers; refuse, by name, a column that exceeds the range of the recursion's precision."""
        names = [name(i) for i in range(X.shape[1])]
        with _value_errors(), np.errstate(over="ignore", invalid="ignore"):
            check_scaler(scaler, names)
            scaled = scaler(X)
            remedy = "correct it, or leave its row out"
            check_scaled(X, scaled, names, max_scaled_magnitude(self._settings().dtype), lambda i: f"row {i}", remedy)
        return torch.from_numpy(scaled)

    def _feature_name(self, i: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"feature {i}" if names is None else f"feature {names[i]!r}"

    def _train(self, problem: Problem, steps: int | None, start: FitState | None) -> None:
        """Select the settings that are None, then train from cloud_0, or continue the fit ``start``.

        An interrupt during the recursions ends them early; an interrupt during the selection, which leaves no cloud, is
        raised.
        """
        given = self._settings()
        selected: Selection | None = None
        if start is None:
            seed, selection, settings = _seed(self.random_state), [], given
            if None in (getattr(given, name) for name in SELECTED):
                with _Progress(self.verbose) as progress, limited_threads(self.threads):
                    selected = select(problem, given, seed=seed, threads=self.threads, progress=progress.describe)
                settings, selection = selected.settings, list(selected.table)
        else:
            seed, selection = self._seed, self.selection_
            settings, start = self._continue_from(given, start)
        number = settings.steps if steps is None else steps
        self._interrupted = False
        with _Progress(self.verbose, number, 0 if start is None else start.newest.step) as progress:

            def callback(cloud: PointCloud, row: dict[str, float]) -> None:
                progress.show(row)
                for user_callback in self.callbacks:
                    user_callback(dict(row), cloud)

            try:
                with limited_threads(self.threads):
                    fitted = fit(
                        problem,
                        settings,
                        seed=seed,
                        steps=number,
                        start=start,
                        threads=self.threads,
                        callback=callback,
                    )
            except FitInterrupted as error:
                fitted, self._interrupted = error.fitted, True
        self._fitted, self._seed, self.selection_, self._selection = fitted, seed, selection, selected
        self.settings_ = dataclasses.asdict(settings)

    @contextlib.contextmanager
    def _restore_on_failure(self) -> Iterator[None]:
        """Restore the state of the last fit if a fit fails for any reason."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            parameters = {name: value for name, value in vars(self).items() if name in self._get_param_names()}
            self.__dict__ = before | parameters
            raise

    def _continue_from(self, given: Settings, start: FitState) -> tuple[Settings, FitState]:
        """Return a continued fit's settings, and its start, without an epsilon measured under other settings."""
        if len(start.cloud.theta) != given.N:
            raise ValueError(f"N={given.N}, but the continued fit has N={len(start.cloud.theta)}")
        before = Settings(**self.settings_)
        kept = {name: getattr(before, name) for name in SELECTED if getattr(given, name) is None}
        settings = dataclasses.replace(given, **kept)
        newest = start.newest.to("cpu", getattr(torch, settings.dtype))
        if (before.epsilon, before.epsilon_quantile) != (settings.epsilon, settings.epsilon_quantile):
            newest = dataclasses.replace(newest, epsilon=None)
        return settings, dataclasses.replace(start, newest=newest)

    def _warn_if_interrupted(self) -> None:
        """Warn that an interrupted fit made fewer steps than requested; scikit-learn's own networks do the same."""
        if self._interrupted:
            warnings.warn(
                f"the training was interrupted: the estimator is fitted with {self.n_steps_} recursions, from which "
                "partial_fit and warm_start continue",
                stacklevel=4,
            )

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        with _value_errors(), limited_threads(self.threads):
            return self._model.predict(rows)


class _Progress:
    """A progress bar on stderr with the newest risk, where ``verbose`` is set."""

    def __init__(self, verbose: bool | int, steps: int | None = None, start: int = 0) -> None:
        self.bar = tqdm(total=steps, unit="rec", file=sys.stderr, disable=not verbose)
        self.start = start

    def describe(self, text: str) -> None:
        self.bar.set_description_str(text)

    def show(self, row: dict[str, float]) -> None:
        self.bar.update(row["step"] - self.start - self.bar.n)
        self.bar.set_postfix_str(f"risk {row['train_risk']:.4g}")

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()


@contextlib.contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Limit the threads that torch and BLAS use within the block; None: no limit."""
    if threads is None:
        yield
        return
    before, threads = torch.get_num_threads(), usable_threads(threads)
    with threadpool_limits(threads):
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@contextlib.contextmanager
def _value_errors() -> Iterator[None]:
    """Turn an InputError into a ValueError, which users of scikit-learn expect."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def _seed(random_state: Any) -> int:
    """Return the seed: an integer itself, as on the command line, or a number drawn from a generator."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _plain(value: Any) -> Any:
    """Convert a numpy number, such as a parameter search passes, to a Python number."""
    return value.item() if isinstance(value, np.generic) else value
