"""The base class of the estimators: parameters and their validation, selection, training, and fitted state."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from proxlearn.core import literal
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.losses import Loss
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.part_checks import check_loss, check_probabilities
from proxlearn.core.samples import Samples
from proxlearn.data.scaling import Scaler, check_scaled, check_scaler, max_scaled_magnitude
from proxlearn.estimator_parameters import SELECTED, EstimatorParameters, text_columns_explained, value_errors
from proxlearn.memory import device_memory
from proxlearn.portability import usable_threads
from proxlearn.predict.model import Model, Prediction
from proxlearn.printable_text import counted
from proxlearn.training.engine import choose_engine
from proxlearn.training.fit import FitInterrupted, FitState, fit
from proxlearn.training.settings import Settings
from proxlearn.training.successive_halving import FEWEST_ROWS, Selection, SelectionInterrupted, select
from proxlearn.validators import callables


@dataclasses.dataclass(frozen=True)
class WeightedRows:
    """The rows of a fit that have a positive weight."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    """Sample weights, scaled such that the largest is 1; None if all are equal."""
    numbers: np.ndarray
    """Indices of the rows in the arrays that the user gave."""
    complete: bool
    """Whether every row has a positive weight."""

    def scaled(self, values: np.ndarray, scaler: Scaler, names: Sequence[str], limit: float) -> torch.Tensor:
        """Return the scaled columns; raise ValueError, naming the column, if a scaled magnitude exceeds ``limit``."""
        with value_errors(), np.errstate(over="ignore", invalid="ignore"):
            check_scaler(scaler, names)
            scaled = scaler(values)
            remedy = "correct the value, or leave out its row"
            check_scaled(values, scaled, names, limit, lambda i: f"row {self.numbers[i]}", remedy)
        return torch.from_numpy(scaled)


def dense_rows(X: Any) -> np.ndarray:
    """Return the rows as a dense array; raise ValueError if a sparse matrix would then need too much memory."""
    if not issparse(X):
        return np.asarray(X)
    needed, available = 8 * X.shape[0] * X.shape[1], device_memory("cpu")
    if needed > available / 2:
        raise ValueError(
            f"X is sparse; as a dense array, it would need {needed / 2**30:.0f} GiB, which is more than half of this "
            f"machine's memory ({available / 2**30:.0f} GiB); select features, or reduce their number with TruncatedSVD"
        )
    dense: np.ndarray = X.toarray()
    return dense


def weighted_rows(X: np.ndarray, y: np.ndarray, sample_weight: Any) -> WeightedRows:
    """Validate the sample weights and remove the rows of weight 0.

    The removed rows do not affect the scalings, the classes or the split of the selection. Equal weights are replaced
    by None, so that the fit is bit for bit the same as without weights.
    """
    numbers = np.arange(len(X))
    if sample_weight is None:
        return WeightedRows(X, y, None, numbers, complete=True)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("every sample weight is zero; give at least one row a positive weight")
    # The weights are divided by the largest one, so that their sum is finite.
    weights = weights / weights.max()
    numbers = np.flatnonzero(weights)
    weights = weights[numbers]
    equal = bool((weights == 1).all())
    return WeightedRows(X[numbers], y[numbers], None if equal else weights, numbers, complete=len(numbers) == len(X))


class ProxLearn(EstimatorParameters):
    """Base class of the estimators: a cloud of weighted particles, trained by proximal mean field learning."""

    _fitted: FitState
    _model: Model
    _seed: int
    _interrupted: str
    """The phase in which the last fit was interrupted, "selection" or "recursions"; empty if the fit is complete."""
    _selection: Selection | None
    """The result of the selection; None if nothing was selected or an earlier fit was continued."""
    settings_: dict[str, Any]
    selection_: list[dict[str, Any]]
    selection_end_: str | None

    @property
    def particles_(self) -> np.ndarray:
        """Parameters theta of the particles, shape (N, p), in float64."""
        theta: np.ndarray = self._cloud().theta.numpy()
        return theta

    @property
    def weights_(self) -> np.ndarray:
        """Weights of the particles divided by their sum, shape (N,)."""
        shares: np.ndarray = self._cloud().shares.numpy()
        return shares

    @property
    def history_(self) -> list[dict[str, float]]:
        """One dictionary per logged step, with the step number, risk, effective sample size, h, beta and epsilon."""
        check_is_fitted(self)
        return list(self._fitted.history)

    @property
    def n_steps_(self) -> int:
        """Number of training steps of the fitted cloud."""
        return self._cloud().step

    @property
    def n_iter_(self) -> int:
        """Number of training steps, under the name that scikit-learn uses."""
        return self.n_steps_

    def _cloud(self) -> PointCloud:
        check_is_fitted(self)
        return self._model.cloud

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _can_continue(self) -> bool:
        """Return whether a fit can be continued: the estimator is fitted, and its selection was not interrupted."""
        return self.__sklearn_is_fitted__() and self._interrupted != "selection"

    def _require_rows(self, rows: int, continues: bool) -> None:
        """Raise ValueError if the first call of ``partial_fit`` has too few rows to determine the scalings."""
        if not continues and rows < FEWEST_ROWS:
            raise ValueError(
                f"the first call of partial_fit has {counted(rows, 'row')}, too few to determine the scalings and the "
                f"settings of the fit; give at least {FEWEST_ROWS} rows, preferably several hundred"
            )

    def _make_problem(self, neuron: Neuron, samples: Samples, loss: Loss) -> Risk:
        """Return the risk; raise ValueError if the loss, the confinement or the solver is not valid for this risk."""
        with value_errors():
            check_loss(loss, samples.y)
            if samples.labels is not None:
                check_probabilities(loss, neuron.num_outputs)
            problem = Risk.from_samples(neuron, samples, loss, self._settings().confinement or 0.0)
            if self._checked("solver") == "literal":
                literal.check_problem(problem)
        return problem

    def _scaled_features(self, rows: WeightedRows, scaler: Scaler) -> torch.Tensor:
        names = [self._feature_name(i) for i in range(rows.X.shape[1])]
        return rows.scaled(rows.X, scaler, names, self._largest_magnitude())

    def _largest_magnitude(self) -> float:
        """Return the largest allowed magnitude of scaled values in the precision of the fit."""
        return max_scaled_magnitude(self._settings().dtype)

    def _feature_name(self, i: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"feature {i}" if names is None else f"feature {names[i]!r}"

    def _train(self, problem: Risk, steps: int | None, start: FitState | None) -> None:
        """Select the settings that are None and train from an initial cloud, or continue the fit ``start``.

        An interrupt during the training steps ends the fit early. After an interrupt during the selection, the result
        is the cloud of the best candidate so far; if no candidate has a result yet, the interrupt is raised again.
        """
        given, engine = self._settings(), choose_engine("cpu", solver=self.solver)
        if steps is not None and given.h_schedule == "cosine" and given.horizon is None:
            # If the step size fell to a hundredth, later calls of partial_fit would have hardly any effect.
            given = dataclasses.replace(given, h_schedule="constant")
        with value_errors():
            callbacks = callables("callbacks", self.callbacks)
        selected: Selection | None = None
        self._interrupted = ""
        if start is None:
            seed, selection, end, settings = _seed(self.random_state), [], None, given
            if None in (getattr(given, name) for name in SELECTED if name != "horizon"):
                try:
                    selected = self._select(problem, given, seed, engine)
                except SelectionInterrupted as error:
                    selected, start, self._interrupted = error.selection, error.fitted, "selection"
                settings, selection, end = selected.settings, list(selected.table), selected.end
        else:
            seed, selection, end = self._seed, self.selection_, self.selection_end_
            settings, start = self._continue_from(given, start)
        number = settings.steps if steps is None else steps
        if self._interrupted and start is not None:
            # The result is the best cloud of the best candidate, without further steps.
            settings = dataclasses.replace(settings, N=len(start.cloud.theta))
            start, number = dataclasses.replace(start, newest=start.cloud), 0
        with _Progress(self.verbose, number, 0 if start is None else start.newest.step) as progress:

            def callback(cloud: PointCloud, row: dict[str, float]) -> bool:
                progress.show(row)
                # A list, so that every callback is called even if an earlier one stops the fit.
                results = [user_callback(dict(row), cloud) for user_callback in callbacks]
                return any(results)

            try:
                with limited_threads(self.threads):
                    fitted = fit(
                        problem,
                        settings,
                        seed=seed,
                        steps=number,
                        start=start,
                        engine=engine,
                        threads=self.threads,
                        callback=callback,
                    )
            except FitInterrupted as error:
                fitted, self._interrupted = error.fitted, "recursions"
        self._fitted, self._seed, self.selection_, self._selection = fitted, seed, selection, selected
        self.selection_end_ = end
        self.settings_ = dataclasses.asdict(settings) | {
            "loss": problem.loss.name,
            "activation": self.activation,
            "solver": self.solver,
        }

    def _select(self, problem: Risk, given: Settings, seed: int, engine: str) -> Selection:
        with _Progress(self.verbose) as progress, limited_threads(self.threads):
            return select(
                problem,
                given,
                seed=seed,
                engine=engine,
                threads=self.threads,
                rows=self._checked("selection_rows"),
                progress=progress.describe,
            )

    @contextlib.contextmanager
    def _restore_on_failure(self) -> Iterator[None]:
        """Restore the state of the last fit if the block raises an exception."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            parameters = {name: value for name, value in vars(self).items() if name in self._get_param_names()}
            self.__dict__ = before | parameters
            raise

    def _continue_from(self, given: Settings, start: FitState) -> tuple[Settings, FitState]:
        """Return the settings and the start of a continued fit; discard an epsilon measured with other settings."""
        if len(start.cloud.theta) != given.N:
            raise ValueError(f"N={given.N}, but the continued fit has N={len(start.cloud.theta)}; use the same N")
        before = Settings(**{field.name: self.settings_[field.name] for field in dataclasses.fields(Settings)})
        kept = {name: getattr(before, name) for name in SELECTED if getattr(given, name) is None}
        settings = dataclasses.replace(given, **kept)
        newest = start.newest.to("cpu", getattr(torch, settings.dtype))
        if (before.epsilon, before.epsilon_quantile) != (settings.epsilon, settings.epsilon_quantile):
            newest = dataclasses.replace(newest, epsilon=None)
        return settings, dataclasses.replace(start, newest=newest)

    def _warn_if_interrupted(self) -> None:
        """Warn, as scikit-learn's networks do, if an interrupt ended the fit before all requested steps were done."""
        if self._interrupted == "selection":
            warnings.warn(
                "the fit was interrupted during the selection of its settings; the estimator predicts with the best "
                f"candidate so far, which has {counted(len(self.weights_), 'particle')} and was trained for "
                f"{counted(self.n_iter_, 'step')} on some of the rows; call fit again for a complete fit",
                stacklevel=4,
            )
        elif self._interrupted:
            warnings.warn(
                f"the fit was interrupted after {counted(self.n_steps_, 'step')}; to continue it, call partial_fit, or "
                "call fit with warm_start=True",
                stacklevel=4,
            )

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        with value_errors(), limited_threads(self.threads):
            return self._model.predict(self._rows(X))

    def _rows(self, X: Any) -> np.ndarray:
        """Validate the rows to predict, and return them as a dense array."""
        with text_columns_explained():
            return dense_rows(validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False))


class _Progress:
    """A progress bar on stderr that shows the newest risk; the bar is hidden unless ``verbose`` is set."""

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
    """Limit the number of threads that torch and BLAS use within the block; None sets no limit."""
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


def _seed(random_state: Any) -> int:
    """Return the seed for ``random_state``: the integer itself, or a number drawn from a random generator."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
