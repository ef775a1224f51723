"""scikit-learn estimators: the fit of `proxlearn train recipe=tuned` behind fit and predict.

Features and real targets are standardised with the statistics of the fitted rows; the cloud, its neuron and these
scalings form a ``Model``, which predicts as `proxlearn predict` does.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.neurons.registry import NEURONS
from proxlearn.core.neurons.tanh_outputs import TanhOutputsNeuron
from proxlearn.core.problem import Problem
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import TASKS
from proxlearn.data.scaling import none, standard
from proxlearn.estimator_base import PARAMETERS, ProxLearn
from proxlearn.predict.model import Model

__all__ = ["ProxLearn", "ProxLearnClassifier", "ProxLearnRegressor"]

PARTIAL_STEPS = 10


class ProxLearnClassifier(ClassifierMixin, ProxLearn):  # type: ignore[misc]
    __doc__ = f"""Classification by proximal mean field learning.

    Two classes are predicted by the sign of one function that regresses -1 and +1, more classes by the largest of C
    functions that regress one-hot targets.

{PARAMETERS}    classes_ : the labels, in sorted order.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on these rows; with ``warm_start`` continue the last fit."""
        continues = self.warm_start and self.__sklearn_is_fitted__()
        return self._learn(X, y, None, continues, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, steps: int = PARTIAL_STEPS) -> Self:
        """Train for ``steps`` recursions on these rows, for data that arrives in pieces.

        The first piece determines the scalings and, where parameters are None, the settings. ``classes`` lists the
        labels of all pieces; by default they are those of the first piece.
        """
        return self._learn(X, y, classes, self.__sklearn_is_fitted__(), steps)

    def _learn(self, X: Any, y: Any, classes: Any, continues: bool, steps: int | None) -> Self:
        with self._restore_on_failure():
            self._fit_rows(X, y, classes, continues, steps)
        self._warn_if_interrupted()
        return self

    def _fit_rows(self, X: Any, y: Any, classes: Any, continues: bool, steps: int | None) -> None:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=not continues)
        check_classification_targets(y)
        if not continues:
            self.classes_ = np.unique(y if classes is None else classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            given = list(np.unique(classes))[:20]
            raise ValueError(f"classes={given}, but the continued fit has the classes {list(self.classes_)[:20]}")
        indices = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[indices] != y).any():
            unknown = y[self.classes_[indices] != y][0]
            raise ValueError(
                f"y holds the label {unknown!r}, which is not one of the classes {list(self.classes_)[:20]}"
            )
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only, {self.classes_[0]!r}: a classifier needs at least two")
        scaler = self._model.scaler if continues else standard(X)
        C = len(self.classes_)
        neuron = NEURONS["tanh_outputs"](C)
        labels = torch.from_numpy(indices)
        samples = Samples(self._scaled(X, scaler, self._feature_name), neuron.targets(labels), labels)
        self._train(Problem(neuron, samples), steps, self._fitted if continues else None)
        self._model = Model(
            neuron,
            TASKS["binary" if C == 2 else "multiclass"],
            self._fitted.cloud.to("cpu", torch.float64),
            scaler,
            none(np.empty((0, 1))),
            columns=(),
            classes=tuple(str(label) for label in self.classes_),
        )

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row."""
        # The prediction comes first, because it raises NotFittedError: classes_ does not exist before a fit.
        indices = self._predict(X).predicted
        labels: np.ndarray = self.classes_[indices]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return each class's probability, n x C, from the regressed values: at least 1e-6 each, with sum 1."""
        return self._predict(X).probabilities

    def predict_std(self, X: Any) -> np.ndarray:
        """Return the standard error of each class's probability, n x C, as a mean over the cloud's particles.

        It is the typical change if as many particles were drawn again, independently, from the law that the
        cloud represents: it shows where the particles disagree. Trained particles compensate for one another, so that
        a fit with another seed differs far less. The uncertainty of a label is given by the probabilities themselves.
        """
        return self._predict(X).errors


class ProxLearnRegressor(RegressorMixin, ProxLearn):  # type: ignore[misc]
    __doc__ = f"""Regression, of one target or of several, by proximal mean field learning.

{PARAMETERS}    noise_ : standard deviation of the residuals, one per target: on the rows that selection held out,
        after as many recursions as the fit has (where selection did not choose them: on the fitted rows, if that is
        larger), or, without selection, on the rows fitted last, which underestimates it.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Train on these rows; with ``warm_start`` continue the last fit."""
        return self._learn(X, y, self.warm_start and self.__sklearn_is_fitted__(), None)

    def partial_fit(self, X: Any, y: Any, steps: int = PARTIAL_STEPS) -> Self:
        """Train for ``steps`` recursions on these rows, for data that arrives in pieces.

        The first piece determines the scalings and, where parameters are None, the settings.
        """
        return self._learn(X, y, self.__sklearn_is_fitted__(), steps)

    def _learn(self, X: Any, y: Any, continues: bool, steps: int | None) -> Self:
        with self._restore_on_failure():
            self._fit_rows(X, y, continues, steps)
        self._warn_if_interrupted()
        return self

    def _fit_rows(self, X: Any, y: Any, continues: bool, steps: int | None) -> None:
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=not continues)
        y = np.asarray(y, dtype=np.float64)
        targets = y[:, None] if y.ndim == 1 else y
        outputs = targets.shape[1]
        if continues and outputs != len(self._model.target_scaler.shift):
            raise ValueError(f"y has {outputs} targets, but the continued fit has another number of targets")
        scaler, target_scaler = (
            (self._model.scaler, self._model.target_scaler) if continues else (standard(X), standard(targets))
        )
        neuron: Neuron = TanhOutputsNeuron(outputs) if outputs > 1 else NEURONS["tanh"](1)
        scaled = self._scaled(targets, target_scaler, lambda i: "y" if outputs == 1 else f"target {i}")
        rows = self._scaled(X, scaler, self._feature_name)
        samples = Samples(rows, scaled[:, 0] if outputs == 1 else scaled.T.contiguous())
        self._train(Problem(neuron, samples), steps, self._fitted if continues else None)
        cloud = self._fitted.cloud.to("cpu", torch.float64)
        self._model = Model(neuron, TASKS["regression"], cloud, scaler, target_scaler, columns=())
        residuals = targets - self._model.predict(X).predicted.reshape(targets.shape)
        # The square is computed in scaled units, because the square of 1e200 is infinite.
        fitted_noise = np.sqrt(np.mean((residuals * target_scaler.factor) ** 2, axis=0))
        self.noise_ = self._held_out_noise(fitted_noise, outputs) / target_scaler.factor

    def _held_out_noise(self, fitted_noise: np.ndarray, outputs: int) -> np.ndarray:
        """Return the residuals' standard deviation on held-out rows, scaled; ``fitted_noise``: on the fitted rows.

        Selection's candidate was fitted on fewer rows. At a step that selection did not choose it may have stopped
        earlier, or have a lower risk than the fit by chance: then the larger of the two values is taken.
        """
        selection, step = self._selection, self.n_steps_
        risk = None if selection is None else selection.risk_at(step)
        if selection is None or risk is None:
            return fitted_noise
        # The risk is a sum over the targets.
        held_out = np.full(outputs, np.sqrt(risk / outputs))
        return held_out if step == selection.best_step else np.maximum(held_out, fitted_noise)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted values, in the target's own units: n, or n x targets."""
        return self._predict(X).predicted

    def predict_std(self, X: Any) -> np.ndarray:
        """Return the standard error of f(x) as a mean over the cloud's particles, in the target's own units.

        It is the typical change if as many particles were drawn again, independently, from the law that the
        cloud represents: it shows where the particles disagree. Trained particles compensate for one another, so that
        a fit with another seed differs far less. The noise of the targets is not included: see ``noise_``.
        """
        return self._predict(X).errors

    def predict_interval(
        self, X: Any, coverage: float = 0.9, of: Literal["target", "mean"] = "target"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of a normal interval with the given coverage.

        ``of="target"``: of new targets, with the standard deviation ``noise_``, which includes every error of f on
        new rows. ``of="mean"``: of f(x) under redrawn particles, with ``predict_std``.
        """
        if of not in ("target", "mean"):
            raise ValueError(f"of must be 'target' or 'mean', got {of!r}")
        prediction = self._predict(X)
        mean, errors = prediction.predicted, prediction.errors
        std = errors if of == "mean" else np.broadcast_to(self.noise_, (len(errors), len(self.noise_)))
        width = _quantile(coverage) * std.reshape(mean.shape)
        return mean - width, mean + width


def _quantile(coverage: float) -> float:
    """Return the number of standard deviations that cover this share of a normal law."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}; try coverage=0.9")
    return NormalDist().inv_cdf((1 + coverage) / 2)
