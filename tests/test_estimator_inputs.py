"""The estimators take what scikit-learn gives them: sparse rows, class weights, boosting, interrupts and extremes.

Each example has at most 15 lines of code, runs in an empty folder, and shows the promised result.
"""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris, make_moons
from sklearn.ensemble import AdaBoostClassifier, AdaBoostRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from proxlearn.estimator import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.training import successive_halving
from proxlearn.training.fit import fit
from tests.test_estimator import QUICK

IRIS = load_iris(return_X_y=True)
MOONS = make_moons(120, noise=0.2, random_state=0)


@pytest.mark.parametrize("make", [ProxLearnClassifier, ProxLearnRegressor])
def test_a_sparse_matrix_gives_the_fit_and_the_predictions_of_the_dense_array(make: Any) -> None:
    X, y = MOONS
    dense, other = make(**QUICK).fit(X, y), make(**QUICK).fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(dense.particles_, other.particles_)
    np.testing.assert_array_equal(dense.predict(X), other.predict(sparse.csc_matrix(X)))


def test_a_sparse_matrix_that_does_not_fit_in_memory_is_refused_with_a_remedy() -> None:
    X = sparse.csr_matrix((100, 2**37), dtype=np.float64)
    with pytest.raises(ValueError, match=r"as a dense array, it would need .* GiB, .*TruncatedSVD"):
        ProxLearnClassifier(**QUICK).fit(X, np.arange(100) % 2)


def test_a_default_one_hot_encoder_in_a_pipeline() -> None:
    rng = np.random.default_rng(0)
    X = np.array([["red", "s"], ["red", "m"], ["blue", "s"], ["blue", "m"]], dtype=object)[rng.integers(0, 4, 80)]
    y = (X[:, 0] == "red") & (X[:, 1] == "s")
    model = make_pipeline(make_column_transformer((OneHotEncoder(), [0, 1])), ProxLearnClassifier(**QUICK))
    assert model.fit(X, y).score(X, y) == 1.0


def test_adaboost_weights_the_rows() -> None:
    X, y = MOONS
    model = AdaBoostClassifier(ProxLearnClassifier(**QUICK | {"steps": 3}), n_estimators=3, random_state=0).fit(X, y)
    assert len(model.estimators_) > 1
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("weights", ["balanced", {0: 1.0, 1: 3.0}])
def test_class_weights_are_sample_weights(weights: Any) -> None:
    X, y = MOONS[0][20:], MOONS[1][20:]
    counts = np.bincount(y)
    by_class = len(y) / (2 * counts) if weights == "balanced" else np.array([1.0, 3.0])
    given = np.linspace(1, 2, len(y))
    one = ProxLearnClassifier(**QUICK, class_weight=weights).fit(X, y, sample_weight=given)
    other = ProxLearnClassifier(**QUICK).fit(X, y, sample_weight=given * by_class[y])
    np.testing.assert_allclose(one.particles_, other.particles_, rtol=1e-6)
    assert ProxLearnClassifier(class_weight=weights).get_params()["class_weight"] == weights


@pytest.mark.parametrize("classes", [None, [0, 1]])
def test_balanced_weights_need_all_rows(classes: list[int] | None) -> None:
    X, y = MOONS
    with pytest.raises(ValueError, match="class_weight='balanced' requires all rows"):
        ProxLearnClassifier(**QUICK, class_weight="balanced").partial_fit(X, y, classes=classes)


@pytest.mark.parametrize("data", [MOONS, IRIS], ids=["two", "three"])
def test_the_decision_function_predicts_and_the_logarithms_are_those_of_the_probabilities(data: Any) -> None:
    X, y = data
    model = ProxLearnClassifier(**QUICK).fit(X, y)
    f, p = model.decision_function(X), model.predict_proba(X)
    predicted = (f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)
    np.testing.assert_array_equal(model.classes_[predicted], model.predict(X))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
    if f.ndim == 1:
        np.testing.assert_allclose(p[:, 1], (1 / (1 + np.exp(-f))).clip(1e-6, 1 - 1e-6), rtol=1e-6)
    assert model.n_iter_ == model.n_steps_ == QUICK["steps"]


def test_the_quadratic_loss_has_a_link_that_is_fitted_to_rows_held_out() -> None:
    X, y = IRIS
    model = ProxLearnClassifier(N=40, loss="quadratic", random_state=0, threads=1).fit(X, y)
    f, p = model.decision_function(X), model.predict_proba(X)
    logits = np.log(p) - np.log(p[:, :1])
    slopes = logits[:, 1:] / (f[:, 1:] - f[:, :1])
    inner = (p > 1e-5).all(axis=1)
    np.testing.assert_allclose(slopes[inner], np.median(slopes[inner]), rtol=1e-3)
    assert ((p > 0) & (p < 1)).all()
    given = ProxLearnClassifier(**QUICK, loss="quadratic").fit(X, y)
    assert ((given.predict_proba(X) > 0) & (given.predict_proba(X) < 1)).all()


@pytest.mark.parametrize("make", [ProxLearnClassifier, ProxLearnRegressor])
def test_an_interrupt_during_the_selection_leaves_a_fitted_estimator_and_a_warning(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = MOONS
    calls: list[int] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fit(*args, **kwargs)

    monkeypatch.setattr(successive_halving, "fit", interrupted)
    model = make(N=30, random_state=0, threads=1, warm_start=True)
    with pytest.warns(UserWarning, match=r"interrupted during the selection of its settings; .*call fit again"):
        model.fit(X, y)
    assert model.predict(X).shape == y.shape
    assert len(model.selection_) == 2
    # A further fit starts again: the candidate was trained on a part of the rows.
    assert len(model.fit(X, y).selection_) > 2


def test_the_end_of_the_selection_is_stated() -> None:
    X, y = IRIS
    model = ProxLearnClassifier(N=20, random_state=0, threads=1).fit(X, y)
    assert model.selection_end_ in ("minimum", "step cap", "fewest steps")
    assert ProxLearnClassifier(**QUICK).fit(X, y).selection_end_ is None


@pytest.mark.parametrize("make", [ProxLearnClassifier, ProxLearnRegressor])
def test_the_first_piece_must_have_enough_rows_and_later_ones_need_not(make: Any) -> None:
    X, y = MOONS
    model = make(**QUICK)
    with pytest.raises(ValueError, match=r"the first call of partial_fit has 5 rows, .*at least 8 rows"):
        model.partial_fit(X[:5], y[:5])
    model.partial_fit(X[:50], y[:50]).partial_fit(X[50:51], y[50:51])
    assert model.n_iter_ == 20


def test_the_first_piece_must_have_different_targets() -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.linspace(100, 300, 30)
    model = ProxLearnRegressor(**QUICK)
    for constant in (np.ones(10), np.column_stack((y[:10], np.ones(10)))):
        with pytest.raises(ValueError, match="same value in all rows of the first call of partial_fit"):
            model.partial_fit(X[:10], constant)
    model.partial_fit(X, y).partial_fit(X[:2], [200, 200])


@pytest.mark.parametrize("unit", [1e300, 1e-300, 1.0])
def test_targets_of_any_magnitude_do_not_overflow(unit: float) -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.linspace(-1, 1, 60)
    one, scaled = ProxLearnRegressor(**QUICK).fit(X, y), ProxLearnRegressor(**QUICK).fit(X, y * unit)
    np.testing.assert_allclose(scaled.predict(X) / unit, one.predict(X), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scaled.noise_ / unit, one.noise_, rtol=1e-4)
    assert one.score(X, y) == RegressorMixin.score(one, X, y)
    assert scaled.score(X, y * unit) == pytest.approx(one.score(X, y), abs=1e-3)
    both = np.column_stack((y * unit, y))
    assert np.isfinite(ProxLearnRegressor(**QUICK).fit(X, both).score(X, both, sample_weight=1 + np.arange(60)))


def test_boosted_regressors_parallel_searches_joblib_files_and_pipelines_with_data_frames(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(80, 2)), np.linspace(-1, 1, 80)
    X[:, 0] += 3 * y
    assert AdaBoostRegressor(ProxLearnRegressor(**QUICK), n_estimators=3, random_state=0).fit(X, y).score(X, y) > 0.5
    searches = [GridSearchCV(ProxLearnRegressor(**QUICK), {"h": [0.1, 1.0]}, cv=2, n_jobs=n).fit(X, y) for n in (1, 2)]
    np.testing.assert_array_equal(*(search.cv_results_["mean_test_score"] for search in searches))
    joblib.dump(searches[1].best_estimator_, tmp_path / "model.joblib")
    restored = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(restored.predict(X), searches[0].best_estimator_.predict(X))
    pipeline = make_pipeline(StandardScaler(), ProxLearnRegressor(**QUICK)).set_output(transform="pandas")
    assert list(pipeline.fit(pd.DataFrame(X, columns=["a", "b"]), y)[-1].feature_names_in_) == ["a", "b"]


EXAMPLES = Path(__file__).parents[1] / "examples"
OUTCOMES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "own_data": lambda names: names["risks"][-1] < 0.02 < names["risks"][0],
    "cosine_neuron": lambda names: float(names["risk"].value(names["cloud"].theta, names["cloud"].rho)) < 1e-3,
    "cross_entropy": lambda names: (names["predicted"].numpy() == names["y_test"]).mean() > 0.95,
    "confinement": lambda names: abs(names["variance"] - 1) < 0.05,
    "energies": lambda names: float(names["cloud"].theta.std(0).max()) < 0.2,
    "callback": lambda names: len(names["lengths"]) == names["run"].step < 1000 and names["run"].state == "stopped",
    "load_run": lambda names: names["run"].cloud.step == 500 and Path("cloud.png").stat().st_size > 5000,
}
"""What holds of an example's variables at its end."""


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.iterdir() if path.suffix == ".py"} == set(OUTCOMES)


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_example_is_short(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    code = text.splitlines()[tree.body[0].end_lineno :]
    assert len([line for line in code if line.strip() and not line.lstrip().startswith("#")]) <= 15


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_example_runs_and_shows_what_it_promises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out
    assert OUTCOMES[name](names)


@pytest.mark.parametrize("estimator", [ProxLearnClassifier, ProxLearnRegressor])
def test_text_among_the_features_gets_a_remedy(estimator: type) -> None:
    X = np.array([["1", "north"], ["2", "south"]] * 10, dtype=object)
    with pytest.raises(ValueError, match=r"could not convert string to float: 'north'; encode .* OneHot"):
        estimator().fit(X, np.arange(20) % 2)
