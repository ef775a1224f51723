"""The parameters of the estimators: their documentation, their defaults and the checks of their values."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from proxlearn.config import schema
from proxlearn.core.cloud import PointCloud
from proxlearn.core.losses import LOSSES, Loss, find_loss, recommended_loss
from proxlearn.core.options import Task
from proxlearn.errors import InputError
from proxlearn.training.settings import Settings

Callback = Callable[[dict[str, float], PointCloud], object]
DEFAULT_LOSS: str | None = None
"""The default of the parameter ``loss`` of both estimators."""
CHECKS = {
    field.name: schema.setting_check(field)
    for cls in (schema.DeviceConfig, schema.TrainConfig)
    for field in dataclasses.fields(cls)
}
"""The checks of the command line, which apply to the parameters, too."""
SELECTED = ("steps", "beta", "h", "epsilon", "init_scale")
"""Parameters for which None means that selection chooses the value; for others None is a value."""
TASK_NAMES: dict[Task, str] = {
    "binary": "two classes",
    "multiclass": "three classes or more",
    "regression": "real targets",
}
"""The tasks in the words of a message."""

PARAMETERS = f"""\
    Parameters that are None are chosen by the selection of recipe=tuned, which uses the rows given to ``fit`` alone: it
    trains candidates on three quarters of them and compares their risks on the last quarter. A fit with all parameters
    given is faster; in a search such as GridSearchCV, give the parameters that it does not vary.

    A parameter or a row that cannot be used raises ValueError, as scikit-learn expects, with the message that
    ``proxlearn.InputError`` has elsewhere. A fit that fails leaves the estimator as it was.

    The paper's algorithm is ``drift="paper"``, ``prox_potential="paper"``, ``orientation="paper"`` and
    ``tolerance="paper"`` with ``epsilon_quantile=None`` and given values of ``beta``, ``h`` and ``epsilon``.

    Parameters
    ----------
    N : int, default=500
        Number of particles (neurons).
    steps : int, default=None
        Recursions of a fit; with ``warm_start``, further recursions of each further fit.
    beta, h, epsilon : float, default=None
        Inverse temperature, step size, and entropic regularisation of the proximal step.
    epsilon_quantile : float or None, default=0.5
        ``epsilon`` is a multiple of this quantile of the squared distances between nearest particles; None: it is
        absolute.
    init_scale : float, default=None
        s of the initial cloud, a ~ N(0, 1), b ~ N(0, s^2), w ~ N(0, s^2 / features).
    loss : str, Loss or None, default={DEFAULT_LOSS!r}
        Loss of the risk: "quadratic"; "logistic" for two classes; "cross_entropy" for three classes or more; "huber"
        for real targets, with the threshold 1 in units of the standardised target; the name of a loss that an
        installed package adds, or that ``proxlearn.losses.register`` has named; or an object, such as ``Huber(0.5)`` of
        ``proxlearn.losses``. None is the recommended loss: "logistic", "cross_entropy" or, for real targets,
        "quadratic". With ``drift="paper"`` or ``prox_potential="paper"``, which need it, None is "quadratic" for
        classes, too.
    activation : {{"tanh", "relu", "gelu", "softplus", "sigmoid", "cos"}}, default="tanh"
        sigma of the neurons a sigma(<w, x> + b).
    confinement : float or mapping of str to float, default=0.0
        lambda of the term (lambda / 2) |theta|^2, which is added to the risk: for all coordinates, or for the blocks
        "a", "b" and "w" of theta; blocks that the mapping leaves out are not confined.
    drift : {{"first_variation", "paper"}}, default="first_variation"
        Gradient that moves the particles: of the risk's first variation v + 2 u, or of sum(u + v) as Algorithm 2
        prints it. "paper" needs the quadratic loss.
    prox_potential : {{"first_variation", "paper"}}, default="first_variation"
        Potential of the proximal step: v + 2 u, or v + u as the paper prints it. "paper" needs the quadratic loss.
    orientation : {{"consistent", "paper"}}, default="consistent"
        Row i of the transport cost belongs to the old position of particle i, or to the new one, as printed.
    tolerance : {{"log", "paper"}}, default="log"
        Stopping criterion of the proximal fixed point: a bound on the error of log rho, or the norms of the changes of
        z and q.
    delta : float, default=1e-3
        Threshold of the stopping criterion; 0 runs all ``L`` rounds.
    L : int, default=100
        Maximum number of rounds of the proximal fixed point.
    kernel : {{"auto", "log", "dense"}}, default="auto"
        Storage of the Gibbs kernel: the relevant pairs, the logarithm of the matrix, or the matrix, which underflows.
    solver : {{"closed_form", "literal"}}, default="closed_form"
        "literal" runs Algorithms 1 and 2 line by line, with automatic differentiation and N x N matrices. It needs the
        value "paper" of ``drift``, ``prox_potential``, ``orientation`` and ``tolerance``, the quadratic loss, proximal
        weights, and neither confinement nor sample weights.
    weights : {{"proximal", "uniform", "fisher_rao"}} or str, default="proximal"
        Update of the particles' weights: the proximal step, none, a multiplicative update, or the name of an update
        that an installed package adds.
    resample : {{"none", "systematic"}}, default="none"
        "systematic" resamples the particles when their effective number falls below ``ess_threshold`` N.
    ess_threshold : float, default=0.5
        Threshold of ``resample``, as a share of N.
    h_schedule, beta_schedule : {{"constant", "cosine", "power"}}, default="constant"
        Schedule of the step size and of the temperature.
    horizon : int, default=1000
        Number of recursions over which the schedules decrease.
    batch_size : int or None, default=None
        Rows per recursion, drawn with replacement; None: all rows.
    dtype : {{"float32", "float64"}}, default="float32"
        Precision of the recursion; predictions use float64.
    threads : int or None, default=None
        Maximum number of threads of fits and predictions; None: as many as torch uses.
    warm_start : bool, default=False
        ``fit`` continues from the cloud of the last fit, with its scalings and its selected values.
    random_state : int, RandomState instance or None, default=None
        Seed of initial cloud, noise and selection; an integer means the same as `seed=` on the command line.
    verbose : bool or int, default=False
        Show progress on stderr.
    callbacks : sequence of callable, default=()
        Functions that are called at every logged step with its row of ``history_`` and the cloud. A true result stops
        the fit after that step, as in ``proxlearn.train``; ``n_steps_`` tells where.

    Attributes
    ----------
    particles_ : ndarray of shape (N, p)
        Parameters of the neurons, one row per neuron.
    weights_ : ndarray of shape (N,)
        Weights of the particles, with sum 1.
    history_ : list of dict
        Number, risk, effective sample size, h, beta and epsilon of each logged step.
    settings_ : dict
        All settings of the fit, with the selected values and the name of the loss.
    selection_ : list of dict
        The candidates of the selection and their validation risks.
    n_steps_ : int
        Number of recursions so far.
"""
"""The part of the docstring that both estimators share; each adds its own summary and attributes."""


class EstimatorParameters(BaseEstimator):  # type: ignore[misc]
    """The parameters of both estimators, and their values as the settings of a fit."""

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
        confinement: float | Mapping[str, float] = 0.0,
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
        self.dtype = dtype
        self.threads = threads
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _settings(self) -> Settings:
        """Return the parameters as settings, checked like the keys of the command line."""
        names = [field.name for field in dataclasses.fields(Settings) if hasattr(self, field.name)]
        return Settings(**{name: self._checked(name) for name in names})

    def _checked(self, name: str) -> Any:
        """Return the value of a parameter; raise ValueError if the command line would refuse it."""
        with value_errors():
            return CHECKS[name](name, _plain(getattr(self, name)))

    def _choose_loss(self, task: Task) -> Loss:
        """Return the loss of a task; raise ValueError if it does not support the task or the other parameters."""
        if isinstance(self.loss, Loss):
            loss = self.loss
        else:
            with value_errors():
                readings = (self.drift, self.prox_potential)
                loss = find_loss(self._checked("loss") or recommended_loss(task, readings))
        if task not in loss.tasks:
            supported = [name for name in LOSSES.own_names if task in find_loss(name).tasks]
            remedy = f"choose loss={'|'.join(supported)}"
            raise ValueError(f"loss={loss.name} does not support {TASK_NAMES[task]}; {remedy}")
        with value_errors():
            schema.check_readings(self.get_params(deep=False) | {"loss": loss.name})
        return loss


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Turn an InputError of the command line into the ValueError that scikit-learn expects."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def _plain(value: Any) -> Any:
    """Convert a numpy number, such as a parameter search passes, to a Python number."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value.item() if isinstance(value, np.generic) else value
