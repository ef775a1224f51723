"""The scikit-learn face of the same recursion: what `proxlearn train recipe=tuned` fits, behind fit and predict.

Features and real targets are standardised inside, with figures of the rows that are fitted; the cloud, its neuron and
these scalings make a ``Model``, which predicts as `proxlearn predict` does.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from tqdm import tqdm

from proxlearn import schema
from proxlearn.core.cloud import PointCloud
from proxlearn.core.neurons import NEURONS, Neuron
from proxlearn.core.problem import Problem, Samples
from proxlearn.core.scores import TASKS
from proxlearn.core.tanh_outputs import TanhOutputsNeuron
from proxlearn.data.scaling import none, standard
from proxlearn.errors import InputError
from proxlearn.fit.fit import Fitted, fit
from proxlearn.fit.select import select
from proxlearn.fit.settings import Settings
from proxlearn.predict.model import Model, Prediction

Callback = Callable[[dict[str, float], PointCloud], None]
CHECKS = {
    field.name: field.metadata["check"]
    for cls in (schema.DeviceConfig, schema.TrainConfig)
    for field in dataclasses.fields(cls)
}
"""What a setting may be is said once, for the command line and for here."""
PARTIAL_STEPS = 10

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
    threads : None: as many as torch takes.
    warm_start : ``fit`` goes on from the cloud of the last one, with its settings and scalings.
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

    _fitted: Fitted
    _model: Model
    _seed: int
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
        try:
            values: dict[str, Any] = {name: CHECKS[name](name, _plain(getattr(self, name))) for name in names}
        except InputError as error:
            raise ValueError(str(error)) from error
        return Settings(**values)

    def _train(self, problem: Problem, steps: int | None, start: Fitted | None) -> None:
        """Select what is open, then recurse: from cloud_0, or on from what was fitted."""
        given = self._given()
        if start is None:
            self._seed = _seed(self.random_state)
            self.selection_ = []
            settings = given
            if None in (given.steps, given.beta, given.h, given.epsilon, given.init_scale):
                with _Progress(self.verbose) as progress:
                    found = select(problem, given, seed=self._seed, threads=self.threads, progress=progress.say)
                settings, self.selection_ = found.settings, list(found.table)
        else:
            if len(start.cloud.theta) != given.N:
                raise ValueError(f"N={given.N}, but the fit to go on with has N={len(start.cloud.theta)}")
            changed = {name: value for name, value in dataclasses.asdict(given).items() if value is not None}
            settings = Settings(**(self.settings_ | changed))
        self.settings_ = dataclasses.asdict(settings)
        steps = settings.steps if steps is None else steps
        with _Progress(self.verbose, steps, 0 if start is None else start.newest.step) as progress:

            def callback(cloud: PointCloud, row: dict[str, float]) -> None:
                progress.show(row)
                for each in self.callbacks:
                    each(dict(row), cloud)

            self._fitted = fit(
                problem,
                settings,
                seed=self._seed,
                steps=steps,
                start=start,
                threads=self.threads,
                callback=callback,
            )

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        return self._model.predict(validate_data(self, X, dtype=np.float64, reset=False))


class ProxLearnClassifier(ClassifierMixin, ProxLearn):  # type: ignore[misc]
    __doc__ = f"""Classification by proximal mean field learning.

    Two classes are told apart by the sign of one function that regresses -1 and +1, many by the largest of C functions
    that regress one-hot targets.

{PARAMETERS}    classes_ : the labels, in sorted order.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on these rows; with ``warm_start`` on from the last fit."""
        going_on = self.warm_start and self.__sklearn_is_fitted__()
        return self._learn(X, y, None, going_on, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, steps: int = PARTIAL_STEPS) -> Self:
        """``steps`` recursions on these rows, for data that comes in pieces.

        The first piece decides the scalings and, where parameters are None, the settings. ``classes`` names the labels
        of all pieces; without it they are those of the first.
        """
        return self._learn(X, y, classes, self.__sklearn_is_fitted__(), steps)

    def _learn(self, X: Any, y: Any, classes: Any, going_on: bool, steps: int | None) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=not going_on)
        check_classification_targets(y)
        if not going_on:
            self.classes_ = np.unique(y if classes is None else classes)
        indices = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[indices] != y).any():
            unknown = y[self.classes_[indices] != y][0]
            raise ValueError(f"y holds the label {unknown!r}, which is none of the classes {list(self.classes_)[:20]}")
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only, {self.classes_[0]!r}: there is nothing to tell apart")
        scaler = self._model.scaler if going_on else standard(X)
        C = len(self.classes_)
        neuron = NEURONS["tanh_outputs"](C)
        labels = torch.from_numpy(indices)
        samples = Samples(torch.from_numpy(scaler(X)), neuron.targets(labels), labels)
        self._train(Problem(neuron, samples), steps, self._fitted if going_on else None)
        self._model = Model(
            neuron,
            TASKS["binary" if C == 2 else "multiclass"],
            self._fitted.cloud.to("cpu", torch.float64),
            scaler,
            none(np.empty((0, 1))),
            columns=(),
            classes=tuple(str(label) for label in self.classes_),
        )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        predicted = self._predict(X).predicted
        found: np.ndarray = self.classes_[predicted]
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, n x C: what f regresses, kept within [0, 1] and summing to 1."""
        return self._predict(X).probabilities

    def predict_std(self, X: Any) -> np.ndarray:
        """The standard error of each class's probability, n x C, as a mean over the cloud's particles.

        How far it would typically move if as many particles were drawn anew, independently, from the law that the cloud
        stands for: where the particles disagree. Trained particles make up for one another, so that a fit with another
        seed moves far less. How uncertain a label is, the probabilities themselves say.
        """
        return self._predict(X).errors


class ProxLearnRegressor(RegressorMixin, ProxLearn):  # type: ignore[misc]
    __doc__ = f"""Regression, of one target or of several, by proximal mean field learning.

{PARAMETERS}    noise_ : standard deviation of what the fit leaves unexplained, one a target: on the rows that
        selection held out (the least that it met there), or, where there was none, on the rows fitted last, which
        flatters.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Train on these rows; with ``warm_start`` on from the last fit."""
        return self._learn(X, y, self.warm_start and self.__sklearn_is_fitted__(), None)

    def partial_fit(self, X: Any, y: Any, steps: int = PARTIAL_STEPS) -> Self:
        """``steps`` recursions on these rows, for data that comes in pieces.

        The first piece decides the scalings and, where parameters are None, the settings.
        """
        return self._learn(X, y, self.__sklearn_is_fitted__(), steps)

    def _learn(self, X: Any, y: Any, going_on: bool, steps: int | None) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=not going_on)
        y = np.asarray(y, dtype=np.float64)
        targets = y[:, None] if y.ndim == 1 else y
        outputs = targets.shape[1]
        if going_on and outputs != len(self._model.target_scaler.shift):
            raise ValueError(f"y has {outputs} targets, and the fit to go on with has another number of them")
        scaler, target_scaler = (
            (self._model.scaler, self._model.target_scaler) if going_on else (standard(X), standard(targets))
        )
        neuron: Neuron = TanhOutputsNeuron(outputs) if outputs > 1 else NEURONS["tanh"](1)
        scaled = torch.from_numpy(target_scaler(targets))
        samples = Samples(torch.from_numpy(scaler(X)), scaled[:, 0] if outputs == 1 else scaled.T.contiguous())
        self._train(Problem(neuron, samples), steps, self._fitted if going_on else None)
        cloud = self._fitted.cloud.to("cpu", torch.float64)
        self._model = Model(neuron, TASKS["regression"], cloud, scaler, target_scaler, columns=())
        risks = [row["validation_risk"] for row in self.selection_ if row["validation_risk"] is not None]
        if risks and steps is None and not going_on:
            # In units of the standardised targets, summed over them.
            self.noise_ = np.sqrt(min(risks) / outputs) / target_scaler.factor
        else:
            residuals = targets - self._model.predict(X).predicted.reshape(targets.shape)
            self.noise_ = np.sqrt(np.mean(residuals**2, axis=0))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The values, in the target's own units: n, or n x targets."""
        return self._predict(X).predicted

    def predict_std(self, X: Any) -> np.ndarray:
        """The standard error of f(x) as a mean over the cloud's particles, in the target's own units.

        How far it would typically move if as many particles were drawn anew, independently, from the law that the cloud
        stands for: where the particles disagree. Trained particles make up for one another, so that a fit with another
        seed moves far less. It does not know how noisy the targets are: ``noise_`` does.
        """
        return self._predict(X).errors

    def predict_interval(
        self, X: Any, coverage: float = 0.9, of: Literal["target", "mean"] = "target"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of a normal interval that is to cover this share.

        ``of="target"``: of new targets, with the standard deviation ``noise_``, in which every error of f on rows that
        it has not seen is contained. ``of="mean"``: of f(x) under redrawn particles, with ``predict_std``.
        """
        if of not in ("target", "mean"):
            raise ValueError(f"of must be 'target' or 'mean', got {of!r}")
        found = self._predict(X)
        std = found.errors if of == "mean" else np.broadcast_to(self.noise_, (len(found.errors), len(self.noise_)))
        width = _quantile(coverage) * std.reshape(found.predicted.shape)
        return found.predicted - width, found.predicted + width


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


def _seed(random_state: Any) -> int:
    """An integer is the seed itself, as on the command line; a generator (or none) is asked for one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _plain(value: Any) -> Any:
    """numpy's numbers, which searches like to pass, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _quantile(coverage: float) -> float:
    """How many standard deviations cover this share of a normal law."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}; try coverage=0.9")
    return NormalDist().inv_cdf((1 + coverage) / 2)
