"""The scikit-learn classifier, which trains in the same way as `proxlearn train recipe=tuned`.

The features are standardised with the statistics of the training rows. The cloud, its neuron and this scaling form a
``Model``, which predicts in the same way as `proxlearn predict`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from proxlearn.core.losses import with_link
from proxlearn.core.neurons.registry import make_neuron
from proxlearn.core.options import Task
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import TASKS
from proxlearn.data.scaling import none, standard
from proxlearn.estimator_base import ProxLearn, WeightedRows, dense_rows, limited_threads, weighted_rows
from proxlearn.estimator_parameters import PARTIAL_STEPS, parameters_with, text_columns_explained, value_errors
from proxlearn.estimator_regressor import ProxLearnRegressor
from proxlearn.predict.model import Model

__all__ = ["ProxLearn", "ProxLearnClassifier", "ProxLearnRegressor"]


CLASS_WEIGHT = """\
    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes; the weight of a row is multiplied by that of its class. "balanced" gives every class the
        same total weight; a dictionary maps labels to weights.
"""


def _with_class_weight(init: Callable[..., None]) -> Callable[..., None]:
    """Add the common parameters to a constructor's signature, from which scikit-learn reads the parameter names."""
    shared = inspect.signature(ProxLearn.__init__).parameters
    own = [parameter for name, parameter in inspect.signature(init).parameters.items() if name == "class_weight"]
    init.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    return init


class ProxLearnClassifier(ClassifierMixin, ProxLearn):  # type: ignore[misc]
    __doc__ = f"""Classifier trained by proximal mean field learning.

    Two classes are predicted by the sign of one function with the targets -1 and +1, and more classes by the largest of
    C functions with one-hot targets. Only one target is supported; for several, use scikit-learn's
    ``MultiOutputClassifier``.

    To save a fitted estimator, call ``joblib.dump(estimator, path)``; ``joblib.load(path)`` needs the same versions of
    proxlearn, scikit-learn and torch, and can execute code, so load only files that you trust.

{parameters_with(CLASS_WEIGHT)}    classes_ : ndarray of shape (C,)
        The labels, in sorted order.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from proxlearn import ProxLearnClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> settings = dict(N=50, steps=100, beta=1e5, h=2.0, epsilon=0.1, init_scale=2.0)
    >>> learner = ProxLearnClassifier(**settings, random_state=0).fit(X, y)
    >>> learner.score(X, y) > 0.9, learner.predict_proba(X).shape
    (True, (200, 2))
    """

    _link_slope: float | None

    @_with_class_weight
    def __init__(self, *, class_weight: str | Mapping[Any, float] | None = None, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier, or continue the last fit if ``warm_start`` is set.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features.
        y : array-like of shape (n,)
            Labels.
        sample_weight : array-like of shape (n,), default=None
            Weights s_m >= 0 of the rows: with the losses l_m of the rows, the risk is sum s_m l_m / sum s_m. The
            scalings are weighted in the same way. Rows of weight 0 are ignored, and so are labels that occur only in
            such rows.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, None, self.warm_start and self._can_continue(), None)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, steps: int = PARTIAL_STEPS, sample_weight: Any = None
    ) -> Self:
        """Train for ``steps`` steps on one chunk of a dataset.

        The first chunk determines the scalings and the values of parameters that are None. Later calls continue the fit
        on other chunks.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features.
        y : array-like of shape (n,)
            Labels.
        classes : array-like, default=None
            All labels, including those that occur only in later chunks. By default, the labels of the first chunk.
        steps : int, default=10
            Number of steps.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows, as in ``fit``. Their sum has no effect; the influence of a chunk depends on ``steps``.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, classes, self._can_continue(), steps)

    def _learn(self, X: Any, y: Any, sample_weight: Any, classes: Any, continues: bool, steps: int | None) -> Self:
        with self._restore_on_failure():
            self._fit_rows(X, y, sample_weight, classes, continues, steps)
        self._warn_if_interrupted()
        return self

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any, continues: bool, steps: int | None) -> None:
        with text_columns_explained():
            X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", reset=not continues)
        check_classification_targets(y)
        if steps is not None:
            self._require_rows(len(y), continues)
        rows = weighted_rows(dense_rows(X), y, self._with_class_weights(sample_weight, X, y, partial=steps is not None))
        indices = self._class_indices(rows, classes, continues)
        scaler = self._model.scaler if continues else standard(rows.X, rows.weights)
        C = len(self.classes_)
        task: Task = "binary" if C == 2 else "multiclass"
        loss = self._choose_loss(task)
        neuron = make_neuron("tanh_outputs", C, self._checked("activation"))
        labels = torch.from_numpy(indices)
        samples = Samples(self._scaled_features(rows, scaler), neuron.targets(labels), labels)
        problem = self._make_problem(neuron, samples.with_weights(rows.weights), loss)
        self._train(problem, steps, self._fitted if continues else None)
        if self._selection is not None:
            self._link_slope = self._selection.link_slope
        elif not continues:
            self._link_slope = None
        self._model = Model(
            neuron,
            TASKS[task](with_link(loss, self._link_slope)),
            self._fitted.cloud.to("cpu", torch.float64),
            scaler,
            none(np.empty((0, 1))),
            columns=(),
            classes=tuple(str(label) for label in self.classes_),
        )

    def _with_class_weights(self, sample_weight: Any, X: Any, y: np.ndarray, partial: bool) -> Any:
        """Return the sample weights multiplied by the class weights, or None if both are None."""
        if self.class_weight is None:
            return sample_weight
        if self.class_weight == "balanced" and partial:
            raise ValueError(
                "class_weight='balanced' requires all rows at once, so partial_fit does not support it; give a "
                "dictionary of weights"
            )
        by_class = compute_sample_weight(self.class_weight, y)
        if sample_weight is None:
            return by_class
        return by_class * _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _class_indices(self, rows: WeightedRows, classes: Any, continues: bool) -> np.ndarray:
        """Return the index of each row's class, and set ``classes_`` if the fit is new.

        Raise ValueError if a label is not one of the classes, or if there are fewer than two classes.
        """
        y = rows.y
        if not continues:
            self.classes_ = np.unique(y if classes is None else classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            given = list(np.unique(classes))[:20]
            problem = f"classes={given}, but the continued fit has the classes {list(self.classes_)[:20]}"
            raise ValueError(f"{problem}; give the same classes")
        indices = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[indices] != y).any():
            unknown = y[self.classes_[indices] != y][0]
            problem = f"y contains the label {unknown!r}, which is not one of the classes {list(self.classes_)[:20]}"
            raise ValueError(f"{problem}; remove its rows, or start a new fit with all classes")
        if len(self.classes_) < 2:
            where = "y contains" if rows.complete else "the rows of positive weight contain"
            raise ValueError(f"{where} only one class, {self.classes_[0]!r}; give rows of at least two classes")
        return indices

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        # Before a fit, classes_ does not exist, and _predict raises NotFittedError.
        indices = self._predict(X).predicted
        labels: np.ndarray = self.classes_[indices]
        return labels

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the outputs f of the network, with shape (n,) for two classes and (n, C) for more.

        The sign of f, or its largest column, determines the predicted class. With the logistic loss, f is the log-odds
        of the second class; with cross-entropy, the outputs are logits.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.

        Returns
        -------
        ndarray of shape (n,) or (n, C)
        """
        check_is_fitted(self)
        with value_errors(), limited_threads(self.threads):
            f = self._model.mean_outputs(self._rows(X))["weighted"].T.numpy()
        outputs: np.ndarray = f[:, 0] if len(self.classes_) == 2 else f
        return outputs

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities, n x C; each probability is at least 1e-6, and each row sums to 1.

        The logistic loss converts outputs to probabilities by the logistic function, and cross-entropy by softmax. The
        quadratic loss uses the same functions with a slope fitted to the rows that the selection holds out; without a
        selection, the probabilities are (1 + f) / 2 or, for more than two classes, the normalised positive parts of f.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.

        Returns
        -------
        ndarray of shape (n, C)
        """
        return self._predict(X).probabilities

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of the class probabilities, n x C.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.

        Returns
        -------
        ndarray of shape (n, C)
        """
        logarithms: np.ndarray = np.log(self.predict_proba(X))
        return logarithms

    def predict_std(self, X: Any) -> np.ndarray:
        """Return the standard errors of the class probabilities as an n x C array.

        A probability is computed from a mean over the particles. Its standard error is the typical change in this
        mean if the same number of particles were drawn again, independently, from the distribution that the cloud
        represents; it is large for rows on which the particles disagree. Trained particles compensate for one another,
        so the predictions of a fit with another seed differ by far less. The uncertainty of a label is given by the
        probabilities themselves.

        Parameters
        ----------
        X : array-like of shape (n, features)
            Features in the units of the training data.

        Returns
        -------
        ndarray of shape (n, C)
        """
        return self._predict(X).errors
