"""The scikit-learn face of the same recursion: what `proxlearn train recipe=tuned` fits, behind fit and predict.

Features and real targets are standardised inside, with figures of the rows that are fitted; the cloud, its neuron and
these scalings make a ``Model``, which predicts as `proxlearn predict` does.
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
        with self._whole_or_as_before():
            self._learn_whole(X, y, classes, going_on, steps)
        self._warn_if_interrupted()
        return self

    def _learn_whole(self, X: Any, y: Any, classes: Any, going_on: bool, steps: int | None) -> None:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=not going_on)
        check_classification_targets(y)
        if not going_on:
            self.classes_ = np.unique(y if classes is None else classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            shown = list(np.unique(classes))[:20]
            raise ValueError(f"classes={shown}, but the fit to go on with has the classes {list(self.classes_)[:20]}")
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
        samples = Samples(self._scaled(X, scaler, self._feature_name), neuron.targets(labels), labels)
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

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        predicted = self._predict(X).predicted
        found: np.ndarray = self.classes_[predicted]
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, n x C: what f regresses, at least 1e-6 each and summing to 1."""
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
        selection held out, after as many recursions as the fit has (where these were not chosen by selection: on the
        rows fitted, if that is more), or, where there was no selection, on the rows fitted last, which flatters.
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
        with self._whole_or_as_before():
            self._learn_whole(X, y, going_on, steps)
        self._warn_if_interrupted()
        return self

    def _learn_whole(self, X: Any, y: Any, going_on: bool, steps: int | None) -> None:
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
        scaled = self._scaled(targets, target_scaler, lambda i: "y" if outputs == 1 else f"target {i}")
        rows = self._scaled(X, scaler, self._feature_name)
        samples = Samples(rows, scaled[:, 0] if outputs == 1 else scaled.T.contiguous())
        self._train(Problem(neuron, samples), steps, self._fitted if going_on else None)
        cloud = self._fitted.cloud.to("cpu", torch.float64)
        self._model = Model(neuron, TASKS["regression"], cloud, scaler, target_scaler, columns=())
        residuals = targets - self._model.predict(X).predicted.reshape(targets.shape)
        # In scaled units first: the square of 1e200 is infinite.
        left = np.sqrt(np.mean((residuals * target_scaler.factor) ** 2, axis=0))
        self.noise_ = self._held_out_noise(left, outputs) / target_scaler.factor

    def _held_out_noise(self, left: np.ndarray, outputs: int) -> np.ndarray:
        """What the fit leaves unexplained on rows that it has not seen, in scaled units; ``left`` on those fitted.

        Selection's candidate has seen fewer rows, and at a step that was not chosen for its sake it may have been
        stopped before, or be luckier than the fit: then the larger of both counts.
        """
        selection, step = self._selection, self.n_steps_
        risk = None if selection is None else selection.risk_at(step)
        if selection is None or risk is None:
            return left
        # The risk is a sum over the targets.
        held_out = np.full(outputs, np.sqrt(risk / outputs))
        return held_out if step == selection.best_step else np.maximum(held_out, left)

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


def _quantile(coverage: float) -> float:
    """How many standard deviations cover this share of a normal law."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}; try coverage=0.9")
    return NormalDist().inv_cdf((1 + coverage) / 2)
