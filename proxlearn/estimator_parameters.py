"""The parameters of the estimators: their documentation, default values and validation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from proxlearn.config import schema
from proxlearn.core.cloud import PointCloud
from proxlearn.core.losses import LOSSES, Loss, find_loss, recommended_loss
from proxlearn.core.options import Task
from proxlearn.errors import InputError
from proxlearn.training.settings import AUTO_BATCH, DEFAULT_HORIZON, MOST_WHOLE_ROWS, Settings
from proxlearn.training.successive_halving import MOST_ROWS

Callback = Callable[[dict[str, float], PointCloud], object]
DEFAULT_LOSS: str | None = None
"""The default of the parameter ``loss`` of both estimators."""
PARTIAL_STEPS = 10
"""The default number of steps of ``partial_fit``."""
CHECKS = {
    field.name: schema.setting_check(field)
    for cls in (schema.DeviceConfig, schema.TrainConfig)
    for field in dataclasses.fields(cls)
}
"""The checks of the command line, which also apply to the parameters."""
SELECTED = ("steps", "beta", "h", "epsilon", "init_scale", "confinement", "horizon")
"""Parameters whose values the selection chooses if they are None; for other parameters, None is an ordinary value."""
TASK_NAMES: dict[Task, str] = {
    "binary": "two classes",
    "multiclass": "three classes or more",
    "regression": "real targets",
}
"""Descriptions of the tasks for messages."""

PARAMETERS = f"""\
    Parameters that are None are chosen by the selection of recipe=tuned, which uses only the rows given to ``fit``: it
    trains candidates on three quarters of them and compares their log-losses (classes) or risks on the other quarter. A
    fit is faster if all parameters are given; in a search such as GridSearchCV, set the parameters that the search does
    not vary.

    X may be a dense array, a data frame of numbers or a sparse matrix. A sparse matrix is converted to a dense array,
    because the features are centred.

    An invalid parameter or row raises ValueError, as scikit-learn expects, with the same message as
    ``proxlearn.InputError`` in other modules of the package. A fit that fails leaves the estimator unchanged.

    To run the paper's algorithm, set ``drift="paper"``, ``prox_potential="paper"``, ``orientation="paper"``,
    ``tolerance="paper"`` and ``epsilon_quantile=None``, and give values of ``beta``, ``h`` and ``epsilon``.

    Parameters
    ----------
    N : int, default=500
        Number of particles (neurons).
    steps : int, default=None
        Number of steps per fit; with ``warm_start``, each later fit adds this number of steps.
    beta : float, default=None
        Inverse temperature.
    h : float, default=None
        Step size.
    epsilon : float, default=None
        Entropic regularisation of the proximal step.
    epsilon_quantile : float or None, default=0.5
        If given, ``epsilon`` is a multiple of this quantile of the particles' squared distances to their nearest
        neighbours. If None, ``epsilon`` is absolute.
    init_scale : float, default=None
        Scale s of the initial cloud: a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / features).
    loss : str, Loss or None, default={DEFAULT_LOSS!r}
        Loss of the risk: "quadratic"; "logistic" for two classes; "cross_entropy" for three classes or more; "huber"
        for real targets, with the threshold 1 in units of the standardised target; the name of a loss from an installed
        package or from ``proxlearn.losses.register``; or an object, such as ``proxlearn.losses.Huber(0.5)``. None
        selects the recommended loss: "logistic", "cross_entropy" or, for real targets, "quadratic". With
        ``drift="paper"`` or ``prox_potential="paper"``, which require the quadratic loss, None selects the quadratic
        loss for classes as well.
    activation : {{"tanh", "relu", "gelu", "softplus", "sigmoid", "cos"}}, default="tanh"
        Activation sigma of the neurons ``a sigma(<w, x> + b)``. The estimators accept no other neuron; to train a
        neuron of your own, use ``proxlearn.train`` with ``dataset.neuron=NAME`` (see ``proxlearn.neurons.register``).
    confinement : float, mapping of str to float or None, default=None
        Strength lambda of the term (lambda / 2) ||theta||^2, which is added to the risk: one number for all
        coordinates, or one per block "a", "b" and "w" of theta; blocks that are not in the mapping are not confined.
        None means 0 if ``beta``, ``h``, ``epsilon`` and ``init_scale`` are all given; otherwise, the selection chooses
        the value.
    drift : {{"first_variation", "paper"}}, default="first_variation"
        Function whose gradient moves the particles: "first_variation" is the first variation v + 2 u of the risk, and
        "paper" is sum(u + v), as printed in Algorithm 2. "paper" requires the quadratic loss.
    prox_potential : {{"first_variation", "paper"}}, default="first_variation"
        Potential of the proximal step: "first_variation" is v + 2 u, and "paper" is v + u, as printed in the paper.
        "paper" requires the quadratic loss.
    orientation : {{"consistent", "paper"}}, default="consistent"
        "consistent" assigns row i of the transport cost to the old position of particle i, and "paper" to the new
        position, as printed in the paper.
    tolerance : {{"log", "paper"}}, default="log"
        Stopping criterion of the proximal fixed point: "log" uses a bound on the error of log rho, and "paper" the
        norms of the changes of z and q.
    delta : float, default=1e-3
        Threshold of the stopping criterion; 0 runs all ``L`` rounds.
    L : int, default=100
        Maximum number of rounds of the proximal fixed point.
    kernel : {{"auto", "log", "dense"}}, default="auto"
        Storage of the Gibbs kernel: "auto" stores only the relevant pairs, "log" the logarithm of the matrix, and
        "dense" the matrix itself, which may underflow.
    solver : {{"closed_form", "literal"}}, default="closed_form"
        "literal" runs Algorithms 1 and 2 line by line, with automatic differentiation and N x N matrices. It requires
        the value "paper" for ``drift``, ``prox_potential``, ``orientation`` and ``tolerance``, the quadratic loss and
        proximal weights, and it supports neither confinement nor sample weights.
    weights : {{"proximal", "uniform", "fisher_rao"}} or str, default="proximal"
        Update of the particles' weights: "proximal" is the proximal step, "uniform" does not change the weights,
        and "fisher_rao" is a multiplicative update; another name selects an update that an installed package adds.
    resample : {{"none", "systematic"}}, default="none"
        "systematic" resamples the particles when the effective sample size falls below ``ess_threshold`` N.
    ess_threshold : float, default=0.5
        Threshold of ``resample``, as a share of N.
    h_schedule : {{"cosine", "constant", "power"}}, default="cosine"
        Schedule of the step size. If ``horizon`` is None, ``partial_fit`` uses "constant" instead of "cosine", because
        its total number of steps is not known in advance.
    beta_schedule : {{"constant", "cosine", "power"}}, default="constant"
        Schedule of the temperature.
    horizon : int or None, default=None
        Number of steps over which the schedules decrease. If ``beta``, ``h``, ``epsilon`` and ``init_scale`` are
        all given, None makes the step size constant instead of "cosine", and means {DEFAULT_HORIZON} for other
        schedules; otherwise, the selection chooses the value.
    batch_size : int, "auto" or None, default="auto"
        Number of rows per step, drawn with replacement. "auto" means all rows if there are at most
        {MOST_WHOLE_ROWS}, and {AUTO_BATCH} rows otherwise; None means all rows.
    selection_rows : int or None, default={MOST_ROWS}
        Maximum number of rows that the selection uses, stratified by class; None means all rows.
    dtype : {{"float32", "float64"}}, default="float32"
        Precision of the training steps; predictions use float64.
    threads : int or None, default=None
        Maximum number of threads for fits and predictions; None means as many as torch uses.
    warm_start : bool, default=False
        Whether ``fit`` continues from the cloud of the last fit, with its scalings and its selected values.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial cloud, the noise and the selection; an integer has the same meaning as `seed=` on the
        command line.
    verbose : bool or int, default=False
        Whether to show progress on stderr.
    callbacks : sequence of callable, default=()
        Functions that are called at every logged step with the new row of ``history_`` and the cloud. If one of them
        returns a true value, the fit stops after that step; ``n_iter_`` is then the number of steps so far.

    Attributes
    ----------
    particles_ : ndarray of shape (N, p)
        Parameters of the neurons, one row per neuron.
    weights_ : ndarray of shape (N,)
        Weights of the particles, which sum to 1.
    history_ : list of dict
        Step number, risk, effective sample size, h, beta and epsilon of each logged step.
    settings_ : dict
        All settings of the fit, with the selected values and the name of the loss.
    selection_ : list of dict
        The candidates of the selection and their validation risks.
    selection_end_ : {{"minimum", "step cap", "fewest steps"}} or None
        Where the validation score of the selected candidate is lowest: in the middle of its training ("minimum"), near
        the end ("step cap"; more ``steps`` may give a better model), or at one of the first steps ("fewest steps"; the
        features may hardly determine the target). None if nothing was selected.
    n_iter_, n_steps_ : int
        Number of training steps so far.
    n_features_in_ : int
        Number of features.
"""
"""The common part of the docstrings of both estimators; each estimator adds a summary and further attributes."""


def parameters_with(more: str) -> str:
    """Return the common part of the docstrings, with the text ``more`` inserted after the last parameter."""
    before, heading, after = PARAMETERS.partition("\n    Attributes\n")
    return f"{before}{more}{heading}{after}"


class EstimatorParameters(BaseEstimator):  # type: ignore[misc]
    """The common parameters of both estimators, and their conversion to the settings of a fit."""

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
        loss: str | Loss | None = DEFAULT_LOSS,
        activation: str = "tanh",
        confinement: float | Mapping[str, float] | None = None,
        drift: str = "first_variation",
        prox_potential: str = "first_variation",
        orientation: str = "consistent",
        tolerance: str = "log",
        delta: float = 1e-3,
        L: int = 100,
        kernel: str = "auto",
        solver: str = "closed_form",
        weights: str = "proximal",
        resample: str = "none",
        ess_threshold: float = 0.5,
        h_schedule: str = "cosine",
        beta_schedule: str = "constant",
        horizon: int | None = None,
        batch_size: int | Literal["auto"] | None = "auto",
        selection_rows: int | None = MOST_ROWS,
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
        self.loss = loss
        self.activation = activation
        self.confinement = confinement
        self.drift = drift
        self.prox_potential = prox_potential
        self.orientation = orientation
        self.tolerance = tolerance
        self.delta = delta
        self.L = L
        self.kernel = kernel
        self.solver = solver
        self.weights = weights
        self.resample = resample
        self.ess_threshold = ess_threshold
        self.h_schedule = h_schedule
        self.beta_schedule = beta_schedule
        self.horizon = horizon
        self.batch_size = batch_size
        self.selection_rows = selection_rows
        self.dtype = dtype
        self.threads = threads
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _settings(self) -> Settings:
        """Return the parameters as settings, validated in the same way as the keys of the command line."""
        names = [field.name for field in dataclasses.fields(Settings) if hasattr(self, field.name)]
        values = {name: self._checked(name) for name in names}
        selects = None in (values[name] for name in SELECTED if name not in ("steps", "confinement", "horizon"))
        # The literal algorithm does not support confinement.
        if values["confinement"] is None and (not selects or self.solver == "literal"):
            values["confinement"] = 0.0
        if values["horizon"] is None and values["h_schedule"] == "cosine" and not selects:
            values["h_schedule"] = "constant"
        return Settings(**values)

    def _checked(self, name: str) -> Any:
        """Return the value of a parameter; raise ValueError if the command line would reject it."""
        with value_errors():
            return CHECKS[name](name, _plain(getattr(self, name)))

    def _choose_loss(self, task: Task) -> Loss:
        """Return the loss for a task.

        Raise ValueError if the loss does not support the task, or if the parameters cannot be combined.
        """
        if isinstance(self.loss, Loss):
            loss = self.loss
        else:
            with value_errors():
                readings = (self.drift, self.prox_potential)
                loss = find_loss(self._checked("loss") or recommended_loss(task, readings))
        if task not in loss.tasks:
            supported = LOSSES.names_where(lambda name: task in find_loss(name).tasks)
            remedy = f"choose loss={'|'.join(supported)}"
            raise ValueError(f"loss={loss.name} does not support {TASK_NAMES[task]}; {remedy}")
        with value_errors():
            schema.check_readings(self.get_params(deep=False) | {"loss": loss.name})
        return loss


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Convert an InputError that the block raises to a ValueError, as scikit-learn expects."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


@contextlib.contextmanager
def text_columns_explained() -> Iterator[None]:
    """Add a remedy to the ValueError that scikit-learn raises for a column of text; its message contains no remedy."""
    try:
        yield
    except ValueError as error:
        if "could not convert string to float" not in str(error):
            raise
        remedy = "encode columns of text as numbers, for example with OneHotEncoder in make_column_transformer"
        raise ValueError(f"{error}; {remedy}") from error


def _plain(value: Any) -> Any:
    """Convert a numpy number, or the numpy numbers in a mapping, to Python numbers; return other values unchanged.

    A parameter search may pass numpy numbers.
    """
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value.item() if isinstance(value, np.generic) else value
