"""Splits and cells: shared, stored, and never taken for something else."""

from __future__ import annotations

import importlib
import json
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

from proxlearn.baselines import adam, networks
from proxlearn.baselines.registry import METHODS, method_settings
from proxlearn.baselines.sampler import make_settings_function
from proxlearn.cli import main
from proxlearn.compare import cells
from proxlearn.compare.cells import DONE, FAILED, Cell, CellRecord, settings_text, stored_record
from proxlearn.compare.grid import cells_of
from proxlearn.compare.measure import measure, scores
from proxlearn.compare.spec import AUTHORS, AUTHORS_SEEDS, SCALINGS, ComparisonSpec, scaling_of
from proxlearn.compare.splits import split_of
from proxlearn.core.scores import LEAST_PROBABILITY
from proxlearn.data import registry
from proxlearn.errors import RunError
from tests.conftest import config_of

WDBC, BANANA = (config_of(f"dataset={name}").dataset for name in ("wdbc", "banana"))
RECORD = CellRecord(
    DONE, {"accuracy": 0.5, "log_likelihood": -1.0, "calibration_error": 0.25, "seconds": 2.5}, None, {}, 2
)


def cell_of(name: str, **changes) -> Cell:
    return replace(Cell(METHODS[name], WDBC, "a" * 64, 3, "b" * 64, 0.25, "standard"), **changes)


def test_a_split_is_drawn_once_and_then_read(tmp_path: Path) -> None:
    table = registry.load(WDBC)
    first, again, other = (split_of(tmp_path, table, WDBC, number) for number in (0, 0, 1))
    assert sorted([*first.train, *first.test]) == list(range(569))
    assert len(first.train) == 456
    assert first.sha256 == again.sha256 != other.sha256
    path = tmp_path / "splits" / "wdbc-0.json"
    stored = json.loads(path.read_text())
    assert stored["data_sha256"] == table.sha256
    assert stored["train"] == first.train.tolist()
    # Were rows drawn in another way some day, the stored ones would still be those of the other methods.
    path.write_text(json.dumps(stored | {"train": stored["train"][::-1]}))
    assert split_of(tmp_path, table, WDBC, 0).train.tolist() == first.train.tolist()[::-1]


def test_the_samplers_own_split_is_what_their_code_draws(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(AUTHORS_SEEDS, "wdbc", 42)
    table = registry.load(WDBC)
    torch.manual_seed(42)
    theirs = torch.utils.data.random_split(range(569), [int(0.8 * 569), 569 - int(0.8 * 569)])
    for _ in ("drawn", "read"):
        split = split_of(tmp_path, table, WDBC, AUTHORS)
        assert [split.train.tolist(), split.test.tolist()] == [part.indices for part in theirs]
    assert json.loads((tmp_path / "splits" / "wdbc-authors.json").read_text())["seed"] == 42


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: stored | {"data_sha256": "0" * 64},
        lambda stored: stored | {"train": stored["train"][:-1]},
        lambda stored: stored | {"train": [*stored["train"][:-1], stored["train"][0]]},
        lambda stored: stored | {"train": [*stored["train"][:-1], 10**30]},
        lambda stored: stored | {"train": [float(row) for row in stored["train"]]},
        lambda stored: stored | {"train": stored["test"], "test": stored["train"]},
        lambda stored: stored | {"train": "0123"},
    ],
)
def test_a_stored_split_that_does_not_fit_the_data_is_drawn_again(damage, tmp_path: Path) -> None:
    table = registry.load(WDBC)
    good = split_of(tmp_path, table, WDBC, 0)
    path = tmp_path / "splits" / "wdbc-0.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    assert split_of(tmp_path, table, WDBC, 0).sha256 == good.sha256
    assert json.loads(path.read_text())["train"] == good.train.tolist()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    cell = cell_of("adam")
    assert cell.read(tmp_path) is None
    for record in (RECORD, CellRecord(FAILED, {}, "a reason")):
        cell.write(tmp_path, record)
        assert cell.read(tmp_path) == record


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
def test_a_cell_that_differs_in_anything_that_determines_it_is_another(change, tmp_path: Path) -> None:
    cell = cell_of("langevin")
    cell.write(tmp_path, RECORD)
    other = replace(cell, **change)
    assert other.read(tmp_path) is None
    # Not even if somebody puts the file into its place.
    (tmp_path / other.path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / cell.path).rename(tmp_path / other.path)
    assert other.read(tmp_path) is None


def test_another_revision_of_the_method_does_it_again(tmp_path: Path) -> None:
    cell = cell_of("adam")
    cell.write(tmp_path, RECORD)
    assert cell.read(tmp_path) == RECORD
    raised = replace(cell, method=replace(cell.method, revision=2))
    assert raised.read(tmp_path) is None
    assert raised.path != cell.path


def test_another_version_of_the_package_alone_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cell_of("adam")
    cell.write(tmp_path, RECORD)
    monkeypatch.setattr(cells, "__version__", "9.9")
    assert cell.read(tmp_path) == RECORD


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
    plans = {"light": module.LIGHT, "paper": paper["banana"]}
    field = data.draw(st.sampled_from([each.name for each in fields(plans[preset])]))
    old = getattr(plans[preset], field)
    new = (not old) if isinstance(old, bool) else (old or 0) + data.draw(st.integers(1, 9))
    plans[preset] = replace(plans[preset], **{field: new})
    cell = cell_of(name, dataset=BANANA, preset=preset)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        cell.write(Path(folder), RECORD)
        assert cell.read(Path(folder)) == RECORD
        patch.setattr(module, "settings", make_settings_function(plans["light"], paper | {"banana": plans["paper"]}))
        assert cell.read(Path(folder)) is None


@pytest.mark.parametrize("name", ["proxlearn", "uniform", "fisher_rao", "adam"])
@pytest.mark.parametrize(
    "constant, value", [("CANDIDATES", ({"h": 1.0},)), ("RUNGS", ((1, 1),)), ("PATIENCE", 1), ("MOST_PARTICLES", 1)]
)
def test_another_rule_of_the_selection_makes_the_networks_cells_stale(
    name: str, constant: str, value, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(name)
    cell.write(tmp_path, RECORD)
    module = adam if name == "adam" and constant == "CANDIDATES" else networks
    monkeypatch.setattr(module, constant, value)
    assert cell.read(tmp_path) is None


def test_a_stale_cell_is_computed_again_and_the_old_one_is_never_shown(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", "--dataset", "wdbc", "--method", "majority", "--splits", "1", "--output", "out", "--jobs", "1"]
    assert main(words) == 0
    (old,) = Path("out/cells/wdbc").iterdir()
    old.write_text(re.sub(r'"accuracy": [\d.]+', '"accuracy": 0.125', old.read_text()))
    assert main(words) == 0
    assert "1 cells, 1 of them done before" in capsys.readouterr().err
    monkeypatch.setitem(METHODS, "majority", replace(METHODS["majority"], revision=2))
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "1 cells, 0 of them done before" in captured.err
    assert "0.1250" not in captured.out
    assert len(list(Path("out/cells/wdbc").iterdir())) == 2


def test_a_file_under_another_cells_name_is_not_shown(tmp_path: Path) -> None:
    cell, other = cell_of("adam"), cell_of("adam", split=4)
    cell.write(tmp_path, RECORD)
    assert stored_record(tmp_path / cell.path) == RECORD
    (tmp_path / cell.path).rename(tmp_path / other.path)
    assert stored_record(tmp_path / other.path) is None


def test_the_committed_cells_are_of_the_present_settings_and_revisions() -> None:
    paths = list((Path(__file__).parents[2] / "outputs" / "compare" / "cells").glob("*/*.json"))
    assert len(paths) > 300
    for path in paths:
        values = json.loads(path.read_text())
        method = METHODS[values["method"]]
        settings = settings_text(method_settings(method, values["preset"] or "light", values["dataset"]))
        assert (values["settings"], values["revision"]) == (settings, method.revision), path.name
        assert stored_record(path) is not None


def test_a_network_has_no_presets_so_both_share_its_cells() -> None:
    assert cell_of("adam").path == cell_of("adam", preset="paper", temperature=0.5).path


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[" * 100_000,
        lambda text: "null",
        lambda text: text.replace('"finished"', '"done"'),
        lambda text: text.replace("0.5", "NaN"),
        lambda text: text.replace("0.5", '"0.5"'),
        lambda text: text.replace('"accuracy"', '"accurate"'),
        lambda text: text.replace('"notes": {}', '"notes": 3'),
    ],
)
def test_a_damaged_or_hostile_file_counts_for_nothing(damage, tmp_path: Path) -> None:
    cell = cell_of("adam")
    cell.write(tmp_path, RECORD)
    path = tmp_path / cell.path
    changed = damage(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    assert cell.read(tmp_path) is None


def test_a_measured_cell_has_scikit_learns_figures_on_rows_scaled_by_the_training_part(tmp_path: Path) -> None:
    asked = ComparisonSpec((WDBC,), (METHODS["logistic"],), 1, "light", "matched", 1.0)
    (cell,) = cells_of(asked, tmp_path)
    record = measure(cell, tmp_path, threads=1)
    table = registry.load(WDBC)
    split = split_of(tmp_path, table, WDBC, 0)
    scaler = StandardScaler().fit(table.X[split.train])
    model = LogisticRegression().fit(scaler.transform(table.X[split.train]), table.target[split.train])
    Z, labels = scaler.transform(table.X[split.test]), table.target[split.test]
    p = model.predict_proba(Z)
    assert record.figures["accuracy"] == accuracy_score(labels, model.predict(Z))
    assert record.figures["log_likelihood"] == pytest.approx(-log_loss(labels, p), abs=LEAST_PROBABILITY)
    assert cell.test_share == len(split.test) / len(split.train)


def test_a_split_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    asked = ComparisonSpec((WDBC,), (METHODS["majority"],), 1, "light", "matched", 1.0)
    (cell,) = cells_of(asked, tmp_path)
    with pytest.raises(RunError, match="have changed"):
        measure(replace(cell, split_sha256="0" * 64), tmp_path, threads=1)


def test_scores_of_probabilities_known_by_hand() -> None:
    found = scores(np.array([0.9, 0.9, 0.2, 0.5]), np.array([True, False, False, False]))
    assert found["accuracy"] == 0.75
    assert found["log_likelihood"] == pytest.approx(np.log([0.9, 0.1, 0.8, 0.5]).mean())
    # Bins of .9 (one of two right), .8 (right) and .5 (right).
    assert found["calibration_error"] == pytest.approx((2 * 0.4 + 0.2 + 0.5) / 4)
    for wrong in ([0.5, np.nan], [0.5, 1.1], [0.5], [[0.5, 0.5]]):
        with pytest.raises(RunError, match="no probabilities"):
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
