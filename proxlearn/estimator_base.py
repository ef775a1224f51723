"""What the estimators share: parameters, checks, selection and training, and the state that a fit leaves."""

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
"""What a setting may be is said once, for the command line and for here."""
SELECTED = ("steps", "beta", "h", "epsilon", "init_scale")
"""Parameters whose None means that selection chooses them; elsewhere None is a value of its own."""

PARAMETERS = """\
    What is None is chosen by the selection of recipe=tuned, which looks at the rows given to ``fit`` alone: it trains
    candidates on three quarters of them and compares the risk on the last one. Fitting with everything given is
    quicker, and what a search such as GridSearchCV wants for the parameters that it does not vary.

    Parameters
    ----------
    N : number of particles (neurons).
    steps : recursions of a fit; with ``warm_start`` so many more at each further one.
    beta, h, epsilon : inverse temperature, step size, entropic regularisation of the proximal step.
    epsilon_quantile : epsilon is a multiple of this quantile of the squared distances between nearest particles; None:
        epsilon is absolute.
    init_scale : s of the first cloud, a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / features).
    weights : "proximal", "uniform" (the weights stay) or "fisher_rao" (multiplicative).
    resample, ess_threshold : "systematic" draws the particles anew when their effective number falls below this share.
    h_schedule, beta_schedule, horizon : "constant", or how step size and temperature fall, over so many recursions.
    batch_size : rows of a recursion, drawn with replacement; None: all of them.
    dtype : precision of the recursion; predictions are made in float64.
    threads : at most so many, for fits and predictions; None: as many as torch takes.
    warm_start : ``fit`` goes on from the cloud of the last one, with its scalings and with what its selection chose.
    random_state : first cloud, noise, and selection's split; an integer is what `seed=` is on the command line.
    verbose : progress on stderr.
    callbacks : each is called with every logged step's row of ``history_`` and the cloud.

    Attributes
    ----------
    particles_ : (N, p) parameters of the neurons, a row each.
    weights_ : (N,) their weights, summing to 1.
    history_ : for each logged step its number, risk, effective sample size, h, beta, epsilon.
    settings_ : everything that the fit was made with; selection_ : the candidates and their validation risks.
    n_steps_ : recursions made.
"""
"""What both estimators share; each puts its own sentence before it, and its own attributes after."""


class ProxLearn(BaseEstimator):  # type: ignore[misc]
    """A cloud of weighted particles, one neuron each, trained by proximal mean field learning."""

    _fitted: FitState
    _model: Model
    _seed: int
    _interrupted: bool
    _selection: Selection | None
    """Of this very fit; None where nothing was selected, or an older fit was gone on with."""
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
        found: np.ndarray = self._cloud().theta.numpy()
        return found

    @property
    def weights_(self) -> np.ndarray:
        found: np.ndarray = torch.softmax(self._cloud().log_rho, dim=0).numpy()
        return found

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

    def _given(self) -> Settings:
        """The parameters, checked as the command line checks its keys."""
        names = [field.name for field in dataclasses.fields(Settings) if hasattr(self, field.name)]
        with _value_errors():
            values: dict[str, Any] = {name: CHECKS[name](name, _plain(getattr(self, name))) for name in names}
        return Settings(**values)

    def _scaled(self, X: np.ndarray, scaler: Scaler, name: Callable[[int], str]) -> torch.Tensor:
        """The scaled numbers; what the recursion's precision cannot hold is refused by its column."""
        names = [name(i) for i in range(X.shape[1])]
        with _value_errors(), np.errstate(over="ignore", invalid="ignore"):
            check_scaler(scaler, names)
            scaled = scaler(X)
            remedy = "correct it, or leave its row out"
            check_scaled(X, scaled, names, max_scaled_magnitude(self._given().dtype), lambda i: f"row {i}", remedy)
        return torch.from_numpy(scaled)

    def _feature_name(self, i: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"feature {i}" if names is None else f"feature {names[i]!r}"

    def _train(self, problem: Problem, steps: int | None, start: FitState | None) -> None:
        """Select what is open, then recurse: from cloud_0, or on from what was fitted.

        An interrupt during the recursions ends them early; one during the selection, which leaves no cloud, is raised.
        """
        given = self._given()
        found: Selection | None = None
        if start is None:
            seed, selection, settings = _seed(self.random_state), [], given
            if None in (getattr(given, name) for name in SELECTED):
                with _Progress(self.verbose) as progress, limited_threads(self.threads):
                    found = select(problem, given, seed=seed, threads=self.threads, progress=progress.say)
                settings, selection = found.settings, list(found.table)
        else:
            seed, selection = self._seed, self.selection_
            settings, start = self._go_on_with(given, start)
        number = settings.steps if steps is None else steps
        self._interrupted = False
        with _Progress(self.verbose, number, 0 if start is None else start.newest.step) as progress:

            def callback(cloud: PointCloud, row: dict[str, float]) -> None:
                progress.show(row)
                for each in self.callbacks:
                    each(dict(row), cloud)

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
        self._fitted, self._seed, self.selection_, self._selection = fitted, seed, selection, found
        self.settings_ = dataclasses.asdict(settings)

    @contextlib.contextmanager
    def _whole_or_as_before(self) -> Iterator[None]:
        """A fit that fails, for whatever reason, leaves nothing behind: the last one predicts as it did before."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            parameters = {name: value for name, value in vars(self).items() if name in self._get_param_names()}
            self.__dict__ = before | parameters
            raise

    def _go_on_with(self, given: Settings, start: FitState) -> tuple[Settings, FitState]:
        """The settings of a further fit, and its start without what older settings have left in it."""
        if len(start.cloud.theta) != given.N:
            raise ValueError(f"N={given.N}, but the fit to go on with has N={len(start.cloud.theta)}")
        before = Settings(**self.settings_)
        kept = {name: getattr(before, name) for name in SELECTED if getattr(given, name) is None}
        settings = dataclasses.replace(given, **kept)
        newest = start.newest.to("cpu", getattr(torch, settings.dtype))
        if (before.epsilon, before.epsilon_quantile) != (settings.epsilon, settings.epsilon_quantile):
            newest = dataclasses.replace(newest, epsilon=None)
        return settings, dataclasses.replace(start, newest=newest)

    def _warn_if_interrupted(self) -> None:
        """Say that a fit is shorter than asked for; scikit-learn's own networks stop in this way, too."""
        if self._interrupted:
            warnings.warn(
                f"the training was interrupted: the estimator is fitted with the {self.n_steps_} recursions made so "
                "far, and partial_fit or warm_start go on from them",
                stacklevel=4,
            )

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        with _value_errors(), limited_threads(self.threads):
            return self._model.predict(rows)


class _Progress:
    """A bar on stderr, with the newest risk; nothing where nobody asked."""

    def __init__(self, verbose: bool | int, steps: int | None = None, start: int = 0) -> None:
        self.bar = tqdm(total=steps, unit="rec", file=sys.stderr, disable=not verbose)
        self.start = start

    def say(self, text: str) -> None:
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
    """At most so many threads for torch's and BLAS's products, as before afterwards; None: no limit."""
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
    """What is wrong with a value as scikit-learn's users expect it."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def _seed(random_state: Any) -> int:
    """An integer is the seed itself, as on the command line; a generator (or none) is asked for one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _plain(value: Any) -> Any:
    """numpy's numbers, which searches like to pass, as Python's."""
    return value.item() if isinstance(value, np.generic) else value
