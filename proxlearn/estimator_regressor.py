"""The scikit-learn regressor, which trains in the same way as `proxlearn train recipe=tuned`."""

from __future__ import annotations

import warnings
from statistics import NormalDist
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import validate_data

from proxlearn.core.neurons.activations import find_activation
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import TASKS, Regression
from proxlearn.data.scaling import standard
from proxlearn.estimator_base import ProxLearn, dense_rows, weighted_rows
from proxlearn.estimator_parameters import PARTIAL_STEPS, parameters_with, text_columns_explained
from proxlearn.predict.model import Model
from proxlearn.printable_text import counted

SAFE_MAGNITUDE = 1e100
"""A target y with 1 / SAFE_MAGNITUDE <= |y| <= SAFE_MAGNITUDE has a square that neither overflows nor underflows."""


class ProxLearnRegressor(RegressorMixin, ProxLearn):  # type: ignore[misc]
    __doc__ = f"""Regressor for one or several targets, trained by proximal mean field learning.

    With a matrix of targets, one network has one output per target: all outputs use the same neurons, each target is
    standardised separately, and the loss is the sum over the targets. ``predict`` then returns a matrix.

    To save a fitted estimator, call ``joblib.dump(estimator, path)``; ``joblib.load(path)`` needs the same versions of
    proxlearn, scikit-learn and torch, and can execute code, so load only files that you trust.

{parameters_with("")}    noise_ : ndarray of shape (targets,)
        Standard deviation of the residuals on the rows that the selection held out, after the same number of steps as
        in the fit. If the selection did not choose the number of steps, ``noise_`` is the larger of this value and the
        standard deviation on the training rows. Without a selection, or with a loss other than the quadratic one,
        ``noise_`` is computed on the rows of the last fit and underestimates the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from proxlearn import ProxLearnRegressor
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> settings = dict(N=50, steps=300, beta=1e5, h=0.5, epsilon=0.1, init_scale=2.0)
    >>> learner = ProxLearnRegressor(**settings, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> learner.score(X, np.sin(X[:, 0])) > 0.9, learner.predict([[0.5]]).shape
    (True, (1,))
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the regressor, or continue the last fit if ``warm_start`` is set.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features.
        y : array-like of shape (n,) or (n, targets)
            Targets.
        sample_weight : array-like of shape (n,), default=None
            Weights s_m >= 0 of the rows: with the losses l_m of the rows, the risk is sum s_m l_m / sum s_m. The
            scalings and ``noise_`` are weighted in the same way. A row of weight 0 is ignored.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, self.warm_start and self._can_continue(), None)

    def partial_fit(self, X: Any, y: Any, steps: int = PARTIAL_STEPS, sample_weight: Any = None) -> Self:
        """Train for ``steps`` steps on one chunk of a dataset.

        The first chunk determines the scalings and the values of parameters that are None. Later calls continue the fit
        on other chunks.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features.
        y : array-like of shape (n,) or (n, targets)
            Targets.
        steps : int, default=10
            Number of steps.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows, as in ``fit``. Their sum has no effect; the influence of a chunk depends on ``steps``.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, self._can_continue(), steps)

    def _learn(self, X: Any, y: Any, sample_weight: Any, continues: bool, steps: int | None) -> Self:
        with self._restore_on_failure():
            self._fit_rows(X, y, sample_weight, continues, steps)
        self._warn_if_interrupted()
        return self

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, continues: bool, steps: int | None) -> None:
        with text_columns_explained():
            X, y = validate_data(
                self,
                X,
                y,
                dtype=np.float64,
                accept_sparse="csr",
                multi_output=True,
                y_numeric=True,
                reset=not continues,
            )
        y = np.asarray(y, dtype=np.float64)
        if steps is not None:
            self._require_rows(len(y), continues)
        rows = weighted_rows(dense_rows(X), y[:, None] if y.ndim == 1 else y, sample_weight)
        targets = rows.y
        outputs = targets.shape[1]
        if steps is not None and not continues and (targets.max(axis=0) == targets.min(axis=0)).any():
            raise ValueError(
                "a target has the same value in all rows of the first call of partial_fit, which determine its scale; "
                "give a first chunk in which the target varies, preferably with several hundred rows"
            )
        if continues and outputs != len(self._model.target_scaler.shift):
            before = len(self._model.target_scaler.shift)
            problem = f"y has {counted(outputs, 'target')}, but the continued fit has {counted(before, 'target')}"
            raise ValueError(f"{problem}; give the same number of targets")
        if continues:
            scaler, target_scaler = self._model.scaler, self._model.target_scaler
        else:
            scaler, target_scaler = standard(rows.X, rows.weights), standard(targets, rows.weights)
        loss = self._choose_loss("regression")
        neuron = Perceptron(find_activation(self._checked("activation")), num_outputs=outputs)
        names = ["y"] if outputs == 1 else [f"target {i}" for i in range(outputs)]
        scaled = rows.scaled(targets, target_scaler, names, self._largest_magnitude())
        samples = Samples(self._scaled_features(rows, scaler), scaled[:, 0] if outputs == 1 else scaled.T.contiguous())
        risk = self._make_problem(neuron, samples.with_weights(rows.weights), loss)
        self._train(risk, steps, self._fitted if continues else None)
        cloud = self._fitted.cloud.to("cpu", torch.float64)
        self._model = Model(neuron, TASKS["regression"](loss), cloud, scaler, target_scaler, columns=())
        predicted = self._model.predict(rows.X).predicted.reshape(targets.shape)
        # Scaled units prevent overflow: the square of 1e200 is infinite, and so is the difference of 1e308 and -1e308.
        squares = (targets * target_scaler.factor - predicted * target_scaler.factor) ** 2
        noise = np.sqrt(np.average(squares, axis=0, weights=rows.weights))
        # The risk on the held-out rows is a squared error for the quadratic loss only.
        noise = self._held_out_noise(noise, outputs) if loss.name == "quadratic" else noise
        self.noise_ = noise / target_scaler.factor

    def _held_out_noise(self, fitted_noise: np.ndarray, outputs: int) -> np.ndarray:
        """Return the standard deviation of the residuals on held-out rows, in units of the scaled targets.

        ``fitted_noise`` is the standard deviation on the training rows. It is returned if the selection recorded no
        risk for the fit's number of steps. Otherwise, the standard deviation on the held-out rows is computed from the
        risk of the selected candidate, which was trained on fewer rows. If the fit's number of steps differs from the
        selected one, this risk may by chance be lower than that of the fit; the larger of the two standard deviations
        is then returned.
        """
        selection, step = self._selection, self.n_steps_
        risk = None if selection is None else selection.risk_at(step)
        if selection is None or risk is None:
            return fitted_noise
        # The risk is a sum over the targets.
        held_out = np.full(outputs, np.sqrt(risk / outputs))
        return held_out if step == selection.best_step else np.maximum(held_out, fitted_noise)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted values in the units of the targets, with shape (n,) or (n, targets).

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.

        Returns
        -------
        ndarray of shape (n,) or (n, targets)
        """
        return self._predict(X).predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination R2 of the predictions, averaged over the targets.

        If the squares of a target overflow or underflow, as for values such as 1e300, the target is first divided by
        its largest magnitude.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.
        y : array-like of shape (n,) or (n, targets)
            True targets.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        float
        """
        predicted, y = self.predict(X), np.asarray(y, dtype=np.float64)
        largest = np.abs(y).max(axis=0, initial=0.0)
        unit = np.where((largest > SAFE_MAGNITUDE) | ((largest > 0) & (largest < 1 / SAFE_MAGNITUDE)), largest, 1.0)
        return float(r2_score(y / unit, predicted / unit, sample_weight=sample_weight))

    def predict_std(self, X: Any) -> np.ndarray:
        """Return the standard errors of the predictions, in the units of the targets.

        A prediction is a mean over the particles. Its standard error is the typical change in this mean if the same
        number of particles were drawn again, independently, from the distribution that the cloud represents; it is
        large for rows on which the particles disagree. Trained particles compensate for one another, so the predictions
        of a fit with another seed differ by far less. The noise of the targets is not included: see ``noise_``.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.

        Returns
        -------
        ndarray of shape (n,) or (n, targets)
        """
        return self._predict(X).errors

    def predict_interval(
        self, X: Any, coverage: float = 0.9, of: Literal["target", "mean"] = "target"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper bounds of intervals with the given coverage, assuming a normal distribution.

        With ``of="target"``, the intervals are for new targets; they use the standard deviation ``noise_``, which
        includes every error of f on new rows. With ``of="mean"``, the intervals are for the value that f(x) would have
        if the particles were drawn again; they use ``predict_std``.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.
        coverage : float, default=0.9
            Probability that an interval contains the value, between 0 and 1.
        of : {"target", "mean"}, default="target"
            Quantity that the intervals contain with this probability: a new target, or f(x). With "target", the
            prediction must estimate the centre of the targets; with a user-defined loss, such as a quantile loss, a
            warning is issued, unless the loss sets ``estimates_centre`` to True.

        Returns
        -------
        lower, upper : ndarray of shape (n,) or (n, targets)
        """
        if of not in ("target", "mean"):
            raise ValueError(f"of must be 'target' or 'mean', got {of!r}; try of='target'")
        prediction = self._predict(X)
        task = self._model.task
        assert isinstance(task, Regression)
        if of == "target" and not task.loss.estimates_centre:
            warnings.warn(
                f"the intervals are centred on the prediction, but the loss {task.loss.name!r} may estimate something "
                "other than the centre of the targets, such as a quantile; fit one estimator per bound instead, or set "
                "estimates_centre = True in the class of the loss if it does estimate the centre",
                stacklevel=2,
            )
        mean, errors = prediction.predicted, prediction.errors
        std = errors if of == "mean" else np.broadcast_to(self.noise_, (len(errors), len(self.noise_)))
        width = _quantile(coverage) * std.reshape(mean.shape)
        return mean - width, mean + width


def _quantile(coverage: float) -> float:
    """Return z such that the interval mean ± z standard deviations of a normal distribution has the given coverage."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}; try coverage=0.9")
    return NormalDist().inv_cdf((1 + coverage) / 2)
