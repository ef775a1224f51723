"""Scalings do what their names say, and only the paper's scaling uses the test part.

Cells that look like numbers: labels keep a spelling that tells classes apart, and 1_0 is no number in a table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proxlearn import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.data import registry, scaling
from proxlearn.data.csv_file import parse_numeral
from proxlearn.data.prepare import prepare
from proxlearn.data.scaling import check_scaled, check_scaler, max_scaled_magnitude, standard
from proxlearn.data.table import Table
from proxlearn.data.table_problems import TableProblems
from proxlearn.errors import InputError
from tests.data.conftest import dataset_config
from tests.data.test_messy_files import REGRESSION, ROWS, text
from tests.data.test_messy_files import load as load_messy
from tests.data.test_user_table import Write, load, target_of

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))
matrices = st.tuples(st.integers(2, 30), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=numbers)
)


def varying(X: np.ndarray) -> np.ndarray:
    return X[:, X.max(axis=0) > X.min(axis=0)]


@given(matrices)
@settings(max_examples=80, deadline=None)
def test_standard_gives_mean_0_and_deviation_1(X: np.ndarray) -> None:
    scaled = varying(scaling.standard(X)(X))
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-6)


@given(matrices, st.floats(0.5, 8))
@settings(max_examples=80, deadline=None)
def test_minmax_fills_its_interval(X: np.ndarray, top: float) -> None:
    scaled = varying(scaling.minmax(X, top)(X))
    np.testing.assert_allclose(scaled.min(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(scaled.max(axis=0), top, rtol=1e-9)


@given(matrices)
@settings(max_examples=80, deadline=None)
def test_max_leaves_signs_and_reaches_1(X: np.ndarray) -> None:
    scaled = scaling.max_abs(X)(X)
    assert np.array_equal(np.sign(scaled), np.sign(X))
    np.testing.assert_allclose(np.abs(varying(scaled)).max(axis=0, initial=0), 1, rtol=1e-12)


@given(matrices, st.sampled_from(sorted(scaling.FITS)))
@settings(max_examples=80, deadline=None)
def test_a_constant_column_stays_finite(X: np.ndarray, name: str) -> None:
    X[:, 0] = 0.1
    assert np.isfinite(scaling.FITS[name](X)(X)).all()


def random_table(test_part: float, paper_scaling: scaling.ScalerFit | None = None) -> Table:
    """Return a hundred rows, the last fifty of them multiplied by ``test_part``."""
    X = np.random.default_rng(0).normal(2, 3, size=(100, 3))
    X[50:] *= test_part
    target = np.arange(100) % 2
    return Table(X, target, ("a", "b", "c"), "binary", "0" * 64, ("no", "yes"), paper_scaling=paper_scaling)


@pytest.mark.parametrize("name", sorted(scaling.FITS))
def test_scaling_is_fitted_on_the_training_part_alone(name: str) -> None:
    config = dataset_config("wdbc", scaling=name, train_fraction=0.5)
    one, other = (prepare(random_table(factor), config, 0) for factor in (1.0, 7.0))
    assert one.scaler == other.scaler
    assert bool((one.train.X == other.train.X).all())
    expected = scaling.FITS[name](random_table(1.0).X[:50])
    assert one.scaler == expected
    np.testing.assert_allclose(other.test.X.numpy(), expected(random_table(7.0).X[50:]))
    assert not one.scaled_apart


def test_paper_scaling_takes_each_part_by_itself() -> None:
    config = dataset_config("wdbc", scaling="paper", train_fraction=0.5)
    prepared = prepare(random_table(7.0, scaling.minmax), config, 0)
    for part in (prepared.train.X, prepared.test.X):
        np.testing.assert_allclose(part.min(dim=0).values, 0, atol=1e-12)
        np.testing.assert_allclose(part.max(dim=0).values, 1)
    assert prepared.scaled_apart


def test_the_papers_own_scalings(paper_files: Path) -> None:
    def parts(name: str) -> list[np.ndarray]:
        config = dataset_config(name)
        prepared = prepare(registry.load(config), config, 0)
        return [prepared.train.X.numpy(), prepared.test.X.numpy()]

    for X in parts("banana"):
        np.testing.assert_allclose([X.min(axis=0), X.max(axis=0)], [[0, 0], [8, 8]])
    for X in parts("diabetes"):
        np.testing.assert_allclose(X.max(axis=0), 1)
    table = registry.load(dataset_config("twonorm"))
    both = np.concatenate(parts("twonorm"))
    np.testing.assert_allclose(np.sort(both, axis=0), np.sort(8 * table.X, axis=0))


def test_data_outside_the_paper_has_no_paper_scaling() -> None:
    config = dataset_config("digits", scaling="paper")
    with pytest.raises(InputError, match=r"dataset\.scaling=paper is not defined for dataset=digits"):
        prepare(registry.load(config), config, 0)


def test_a_real_target_is_standardised_by_the_training_part(write: Callable[..., Path]) -> None:
    rows = "\n".join(f"{i},{1000 + 3.5 * i}" for i in range(40))
    config = dataset_config("csv", path=str(write("x,y\n" + rows)), target="y", task="regression")
    prepared = prepare(registry.load(config), config, 0)
    y = prepared.train.y.numpy()
    np.testing.assert_allclose([y.mean(), y.std()], [0, 1], atol=1e-12)
    back = prepared.test.y.numpy() / prepared.target_scaler.factor + prepared.target_scaler.shift
    np.testing.assert_allclose(back, prepared.table.target[prepared.rows["test"]])


def test_a_class_without_a_training_row_is_named() -> None:
    table = random_table(1.0)
    late = Table(table.X, (np.arange(100) >= 60).astype(np.int64), table.columns, "binary", "", ("no", "yes"))
    with pytest.raises(InputError, match="class `yes` has no row in the training part"):
        prepare(late, dataset_config("wdbc", train_fraction=0.5), 0)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 0.9))
@settings(max_examples=40, deadline=None)
def test_a_split_uses_every_row_once(seed: int, fraction: float) -> None:
    config = dataset_config("wdbc", split="shuffled", train_fraction=fraction)
    prepared = prepare(random_table(1.0), config, seed)
    assert sorted(np.concatenate(list(prepared.rows.values())).tolist()) == list(range(100))


# Numbers of any size are scaled without overflow, or refused by their column's name; predictions are finite.
QUICK = {"N": 10, "steps": 3, "beta": 1e5, "h": 0.5, "epsilon": 1.0, "init_scale": 1.0, "random_state": 0, "threads": 1}


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e-3, 1.0, 1e160, 1e200, 1e299])
def test_standardising_does_not_depend_on_the_unit(unit: float) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    np.testing.assert_allclose(standard(X * unit)(X * unit), standard(X)(X), rtol=1e-9, atol=1e-12)


def test_a_constant_column_is_zero_whatever_its_size() -> None:
    X = np.column_stack([np.full(7, 1e200 / 3), np.arange(7.0)])
    assert np.abs(standard(X)(X)[:, 0]).max() == 0


def test_what_cannot_be_scaled_or_held_is_refused_by_name() -> None:
    X = np.array([[1e-310, 1.0], [3e-310, 2.0]])
    with pytest.raises(InputError, match=r"^a cannot be scaled"):
        check_scaler(standard(X), ["a", "b"])
    rows = np.array([[1.0, 2.0], [1.0, 1e200]])
    with pytest.raises(InputError, match=r"^the value 1e\+200 in row 1 of b is too large after"):
        check_scaled(rows, rows, ["a", "b"], max_scaled_magnitude("float32"), lambda i: f"row {i}", "correct it")
    check_scaled(rows, rows / 1e100, ["a", "b"], max_scaled_magnitude("float32", "float64"), str, "correct it")


def test_estimators_learn_from_large_numbers_and_refuse_impossible_ones() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] - X[:, 1] ** 2
    fitted = ProxLearnRegressor(**QUICK).fit(X * 1e200, y * 1e200)
    assert np.isfinite(fitted.predict(X * 1e200)).all()
    assert np.isfinite(fitted.noise_).all()
    classifier = ProxLearnClassifier(**QUICK).fit(X, y > 0)
    p = classifier.predict_proba(np.array([[1e200, -1e200], [1e200, 1e200]]))
    assert np.isfinite(p).all()
    with pytest.raises(ValueError, match=r"feature . contains .* too far"):
        classifier.predict(np.array([[1.7e308, -1.7e308]]))
    with pytest.raises(ValueError, match=r"the value 1e\+305 in row 3 of feature 1 is too large"):
        ProxLearnRegressor(**QUICK).fit(np.where(np.arange(80).reshape(40, 2) == 7, 1e305, X), y)
    with pytest.raises(ValueError, match=r"the value .* of feature 0 is too large after scaling"):
        classifier.partial_fit(X * 1e200, y > 0)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["000", "001", "002"], ("000", "001", "002")),
        (["01", "1"], ("01", "1")),
        (["01", "1", "1.0", "2"], ("01", "1", "2")),
        (["9007199254740992.0", "9007199254740993.0"], ("9007199254740992.0", "9007199254740993.0")),
        (["9007199254740992", "9007199254740993"], ("9007199254740992", "9007199254740993")),
        (["1", "1.0", "2", "2e0"], ("1", "2")),
        (["0", "1"], ("0", "1")),
        (["-1", "+1"], ("-1", "1")),
        (["1.0", "2.0"], ("1", "2")),
        (["0.50", "0.5", "1.5"], ("0.5", "1.5")),
    ],
)
def test_distinct_labels_stay_distinct_and_one_number_one_class(
    values: list[str], classes: tuple[str, ...], write: Write
) -> None:
    table = target_of(values * 3, None, write)
    assert table.classes == classes
    assert len(set(table.target.tolist())) == len(classes)


def test_numbers_with_leading_zeros_are_still_numbers_to_regress(write: Write) -> None:
    values = [f"{i:03}" for i in range(40)]
    assert target_of(values, None, write).target.tolist() == list(range(40))
    assert target_of(["01", "02"] * 3, "regression", write).target.tolist() == [1.0, 2.0] * 3


def test_what_only_python_takes_for_a_number_is_refused_by_its_cell(write: Write) -> None:
    assert [parse_numeral(text) for text in ("1_0", "\u0661", "x", " 1e3 ")] == [None, None, None, 1000.0]
    with pytest.raises(InputError, match="column `x` contains text among its numbers: '1_0'"):
        load(write("x,label\n1,a\n1_0,b\n3,a\n4,b\n"))
    with pytest.raises(InputError, match="target column `label` contains text among its numbers: '1_0'"):
        target_of([0.5, 1.5, "1_0", 2.5], "regression", write)


@pytest.mark.parametrize(
    "column, cell, words, message",
    [
        ("y", 1e303, [], "the value 1e\\+303 in data row 4 of target column `y` is too large"),
        ("y", "high", ["--task", "regression"], r"`y` contains text \(high in data row 4\) instead of numbers"),
        (
            "y",
            1e200,
            ["--set", "dataset.target_scaling=none"],
            "1e\\+200 in data row 4 of column `y` is too large after",
        ),
        ("x", 1e200, ["--set", "dataset.scaling=none"], "1e\\+200 in data row 4 of column `x` is too large after"),
    ],
)
@pytest.mark.parametrize("gap", ["y", "z"])
def test_a_cell_of_a_training_table_is_located_in_the_whole_table_if_rows_are_left_out(
    column: str, cell: object, words: list[str], message: str, gap: str, tmp_path: Path
) -> None:
    table = REGRESSION.astype(object)
    table.loc[:2, gap] = None
    # A target is text if most of its cells are text.
    table.loc[3:, "y"] = [f"t{i}" for i in range(3, ROWS)] if cell == "high" else table.loc[3:, "y"]
    table.loc[3, column] = cell
    (tmp_path / "t.csv").write_bytes(text(table.drop(columns="label")))
    with pytest.raises(InputError, match=message) as caught:
        load_messy([str(tmp_path / "t.csv"), "--target", "y", "--missing", "drop", *words])
    assert not isinstance(caught.value, TableProblems)
