"""Splits and cells are shared, stored, and never mistaken for others."""

from __future__ import annotations

import importlib
import re
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from proxlearn.baselines import adam, proxlearn_networks
from proxlearn.baselines.registry import METHODS, method_settings
from proxlearn.baselines.sampler import make_settings_function
from proxlearn.cli import main
from proxlearn.compare.cells import Cell, CellResult, parse_result, settings_text
from proxlearn.compare.grid import grid_cells, missing_cells
from proxlearn.compare.measure import measure, scores
from proxlearn.compare.spec import AUTHORS, AUTHORS_SEEDS, CELLS, SCALINGS, SPLITS, ComparisonSpec, scaling_of
from proxlearn.compare.splits import split_identity, split_of
from proxlearn.core.metrics import LEAST_PROBABILITY
from proxlearn.data import registry
from proxlearn.errors import RunError
from proxlearn.jobs import result_cache
from proxlearn.jobs.result_cache import ResultCache
from tests.conftest import config_of

WDBC, BANANA = (config_of(f"dataset={name}").dataset for name in ("wdbc", "banana"))
RESULT = CellResult(
    {"accuracy": 0.5, "log_likelihood": -1.0, "calibration_error": 0.25, "seconds": 2.5}, {"N": 500}, threads=2
)


def cell_of(name: str, **changes) -> Cell:
    return replace(Cell(METHODS[name], WDBC, "a" * 64, 3, "b" * 64, 0.25, "standard"), **changes)


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / CELLS)


@pytest.fixture
def splits(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / SPLITS)


def test_a_split_is_drawn_once_and_then_read(splits: ResultCache) -> None:
    table = registry.load(WDBC)
    first, again, other = (split_of(splits, table, WDBC, number) for number in (0, 0, 1))
    assert sorted([*first.train, *first.test]) == list(range(569))
    assert len(first.train) == 456
    assert first.sha256 == again.sha256 != other.sha256
    assert len(ResultCache(splits.path)) == 2
    identity = split_identity(table, WDBC, 0)
    stored = splits.get(identity)
    assert stored["train"] == first.train.tolist()
    # If rows are ever drawn in another way, the stored ones are still those of the other methods.
    splits.put(identity, stored | {"train": stored["train"][::-1]})
    assert split_of(ResultCache(splits.path), table, WDBC, 0).train.tolist() == first.train.tolist()[::-1]


def test_the_samplers_own_split_is_what_their_code_draws(splits: ResultCache, monkeypatch) -> None:
    monkeypatch.setitem(AUTHORS_SEEDS, "wdbc", 42)
    table = registry.load(WDBC)
    torch.manual_seed(42)
    theirs = torch.utils.data.random_split(range(569), [int(0.8 * 569), 569 - int(0.8 * 569)])
    for _ in ("drawn", "read"):
        split = split_of(splits, table, WDBC, AUTHORS)
        assert [split.train.tolist(), split.test.tolist()] == [part.indices for part in theirs]
    assert splits.get(split_identity(table, WDBC, AUTHORS))["seed"] == 42


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: {},
        lambda stored: stored | {"train": stored["train"][:-1]},
        lambda stored: stored | {"train": [*stored["train"][:-1], stored["train"][0]]},
        lambda stored: stored | {"train": [*stored["train"][:-1], 10**30]},
        lambda stored: stored | {"train": [float(row) for row in stored["train"]]},
        lambda stored: stored | {"train": stored["test"], "test": stored["train"]},
        lambda stored: stored | {"train": "0123"},
    ],
)
def test_a_stored_split_that_does_not_fit_the_data_is_drawn_again(damage, splits: ResultCache) -> None:
    table = registry.load(WDBC)
    good = split_of(splits, table, WDBC, 0)
    identity = split_identity(table, WDBC, 0)
    splits.put(identity, damage(splits.get(identity)))
    assert split_of(splits, table, WDBC, 0).sha256 == good.sha256
    assert ResultCache(splits.path).get(identity)["train"] == good.train.tolist()


def test_other_data_has_splits_of_its_own(splits: ResultCache) -> None:
    table = registry.load(WDBC)
    split_of(splits, table, WDBC, 0)
    split_of(splits, replace(table, sha256="0" * 64), WDBC, 0)
    assert len(splits) == 2


def test_a_result_is_read_as_it_was_stored(cache: ResultCache) -> None:
    cell = cell_of("adam")
    assert cell.stored_result(cache) is None
    cache.put(cell.identity, RESULT.values())
    for opened in (cache, ResultCache(cache.path)):
        assert cell.stored_result(opened) == RESULT


@pytest.mark.parametrize(
    "change",
    [
        {"preset": "paper"},
        {"temperature": 0.5},
        {"data_sha256": "c" * 64},
        {"split": 4},
        {"split_sha256": "c" * 64},
        {"scaling": "none"},
        {"method": METHODS["svgd"]},
    ],
)
def test_a_cell_that_differs_in_anything_that_determines_it_is_another(change, cache: ResultCache) -> None:
    cell = cell_of("langevin")
    cache.put(cell.identity, RESULT.values())
    other = replace(cell, **change)
    assert other.key != cell.key
    assert other.stored_result(cache) is None
    # Not even if the key of the record is edited.
    cache.path.write_text(cache.path.read_text().replace(cell.key, other.key))
    assert other.stored_result(ResultCache(cache.path)) is None


def test_another_revision_of_the_method_is_computed_again(cache: ResultCache) -> None:
    cell = cell_of("adam")
    cache.put(cell.identity, RESULT.values())
    raised = replace(cell, method=replace(cell.method, revision=cell.method.revision + 1))
    assert missing_cells([cell, raised], cache) == [raised]


def test_another_version_of_the_package_alone_does_not(cache: ResultCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of("adam")
    cache.put(cell.identity, RESULT.values())
    monkeypatch.setattr(result_cache, "__version__", "9.9")
    assert cell.stored_result(ResultCache(cache.path)) == RESULT


SAMPLERS = {
    each.name: importlib.import_module(each.module.partition(":")[0])
    for each in METHODS.values()
    if each.block == "sampler"
}


@given(st.data(), st.sampled_from(sorted(SAMPLERS)), st.sampled_from(["light", "paper"]))
def test_one_changed_number_of_a_preset_makes_its_cells_stale(data, name: str, preset) -> None:
    module = SAMPLERS[name]
    paper = (
        module.PAPER
        if isinstance(module.PAPER, dict)
        else dict.fromkeys(("banana", "diabetes", "twonorm"), module.PAPER)
    )
    presets = {"light": module.LIGHT, "paper": paper["banana"]}
    field = data.draw(st.sampled_from([each.name for each in fields(presets[preset])]))
    old = getattr(presets[preset], field)
    new = (not old) if isinstance(old, bool) else (old or 0) + data.draw(st.integers(1, 9))
    presets[preset] = replace(presets[preset], **{field: new})
    cell = cell_of(name, dataset=BANANA, preset=preset)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        cache = ResultCache(Path(folder, CELLS))
        cache.put(cell.identity, RESULT.values())
        assert cell.stored_result(cache) == RESULT
        patch.setattr(
            module, "settings", make_settings_function(presets["light"], paper | {"banana": presets["paper"]})
        )
        assert cell.stored_result(cache) is None


@pytest.mark.parametrize("name", ["proxlearn", "uniform", "fisher_rao", "adam"])
@pytest.mark.parametrize(
    "constant, value", [("CANDIDATES", ({"h": 1.0},)), ("RUNGS", ((1, 1),)), ("PATIENCE", 1), ("MOST_PARTICLES", 1)]
)
def test_another_rule_of_the_selection_makes_the_networks_cells_stale(
    name: str, constant: str, value, cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(name)
    cache.put(cell.identity, RESULT.values())
    module = adam if name == "adam" and constant in ("CANDIDATES", "RUNGS") else proxlearn_networks
    monkeypatch.setattr(module, constant, value)
    assert cell.stored_result(cache) is None


def test_a_stale_cell_is_computed_again_and_the_old_one_is_never_shown(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", "--dataset", "wdbc", "--method", "majority", "--splits", "1", "--output", "out", "--jobs", "1"]
    assert main(words) == 0
    cells = Path("out", CELLS)
    cells.write_text(re.sub(r'"accuracy": [\d.]+', '"accuracy": 0.125', cells.read_text()))
    assert main(words) == 0
    assert "1 cell, 1 already finished" in capsys.readouterr().err
    monkeypatch.setitem(METHODS, "majority", replace(METHODS["majority"], revision=2))
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "1 cell, 0 already finished" in captured.err
    assert "0.1250" not in captured.out
    assert len(ResultCache(cells)) == 2


def test_the_committed_cells_are_of_the_present_settings_and_revisions() -> None:
    committed = ResultCache(Path(__file__).parents[2] / "outputs" / "compare" / CELLS)
    assert len(committed) > 300
    for record in committed:
        identity = record.identity
        method = METHODS[identity["method"]]
        settings = settings_text(method_settings(method, identity["preset"] or "light", identity["dataset"]))
        assert (identity["settings"], identity["revision"]) == (settings, method.revision), record.key
        assert parse_result(record.result) is not None


def test_a_network_has_no_presets_so_both_share_its_cells() -> None:
    assert cell_of("adam").key == cell_of("adam", preset="paper", temperature=0.5).key


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: {},
        lambda values: values | {"figures": None},
        lambda values: values | {"figures": values["figures"] | {"accuracy": float("nan")}},
        lambda values: values | {"figures": values["figures"] | {"accuracy": "0.5"}},
        lambda values: values | {"figures": values["figures"] | {"accuracy": 1}},
        lambda values: values | {"figures": {"accurate": 0.5}},
        lambda values: values | {"notes": 3},
        lambda values: values | {"threads": float("inf")},
        lambda values: values | {"threads": None},
    ],
)
def test_a_damaged_result_counts_for_nothing_and_is_removed(damage, cache: ResultCache) -> None:
    cell = cell_of("adam")
    cache.put(cell.identity, damage(RESULT.values()))
    assert cell.stored_result(cache) is None
    assert missing_cells([cell], cache) == [cell]
    assert cell.identity not in ResultCache(cache.path)


def test_a_measured_cell_has_scikit_learns_figures_on_rows_scaled_by_the_training_part(tmp_path: Path) -> None:
    spec = ComparisonSpec((WDBC,), (METHODS["logistic"],), 1, "light", "matched", 1.0)
    splits = ResultCache(tmp_path / SPLITS)
    (cell,) = grid_cells(spec, splits)
    result = measure(cell, tmp_path, threads=1)
    table = registry.load(WDBC)
    split = split_of(splits, table, WDBC, 0)
    scaler = StandardScaler().fit(table.X[split.train])
    model = LogisticRegression().fit(scaler.transform(table.X[split.train]), table.target[split.train])
    Z, labels = scaler.transform(table.X[split.test]), table.target[split.test]
    p = model.predict_proba(Z)
    assert result.figures["accuracy"] == accuracy_score(labels, model.predict(Z))
    assert result.figures["log_likelihood"] == pytest.approx(-log_loss(labels, p), abs=LEAST_PROBABILITY)
    assert cell.test_share == len(split.test) / len(split.train)


def test_a_split_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    spec = ComparisonSpec((WDBC,), (METHODS["majority"],), 1, "light", "matched", 1.0)
    (cell,) = grid_cells(spec, ResultCache(tmp_path / SPLITS))
    (tmp_path / "empty").mkdir()
    for changed, folder in ((replace(cell, split_sha256="0" * 64), tmp_path), (cell, tmp_path / "empty")):
        with pytest.raises(RunError, match="changed after the command started"):
            measure(changed, folder, threads=1)
    assert not list((tmp_path / "empty").iterdir())


def test_scores_of_probabilities_known_by_hand() -> None:
    figures = scores(np.array([0.9, 0.9, 0.2, 0.5]), np.array([True, False, False, False]))
    assert figures["accuracy"] == 0.75
    assert figures["log_likelihood"] == pytest.approx(np.log([0.9, 0.1, 0.8, 0.5]).mean())
    # Bins of .9 (one of two right), .8 (right) and .5 (right).
    assert figures["calibration_error"] == pytest.approx((2 * 0.4 + 0.2 + 0.5) / 4)
    for wrong in ([0.5, np.nan], [0.5, 1.1], [0.5], [[0.5, 0.5]]):
        with pytest.raises(RunError, match="not probabilities"):
            scores(np.array(wrong), np.array([True, False]))


def test_the_protocol_decides_the_scaling() -> None:
    svgd, adam, bayes = (METHODS[name] for name in ("svgd", "adam", "bayes"))
    assert [scaling_of("matched", svgd, each) for each in ("banana", "diabetes", "twonorm")] == ["standard"] * 3
    papers = [scaling_of("paper", svgd, each) for each in ("banana", "diabetes", "twonorm", "wdbc")]
    assert papers == ["standard", "symmetric", "none", "standard"]
    assert scaling_of("paper", adam, "diabetes") == "standard"
    assert scaling_of("matched", bayes, "twonorm") == "none"


def test_symmetric_is_minmax_onto_minus_one_and_one() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4)) * [1, 1e3, 1e-3, 1] + 5
    expected = MinMaxScaler((-1, 1)).fit_transform(X)
    np.testing.assert_allclose(SCALINGS["symmetric"](X)(X), expected, atol=1e-9)
