"""recipe=tuned: selected once, stored and shown; and resumed, extended and repeated bit for bit like any other run."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from small_runs import assert_same_run, composed, run, status

from proxlearn.config.run_name import digest
from proxlearn.core.schedules import is_log_spaced
from proxlearn.errors import InputError, ProxlearnError
from proxlearn.predict.model import load_model
from proxlearn.run import selection
from proxlearn.run.experiment import settings_from_config
from proxlearn.run.run_folder import RunFolder
from proxlearn.training.settings import AUTO_BATCH, MOST_WHOLE_ROWS
from proxlearn.views.report.page import PageBuilder
from proxlearn.views.run.run_data import read_run_data


def tuned(*overrides, **changes):
    base = composed(
        "dataset=sine", "recipe=tuned", "N=12", "dataset.points=24", "threads=1", "checkpoint_every=7", *overrides
    )
    return replace(base, **changes)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    run(tuned(), folder)
    return folder


def chosen(folder):
    return json.loads((folder / "selection.json").read_text())["chosen"]


def test_the_choice_its_candidates_and_scores_are_in_the_folder_and_shown(tmp_path, capfd):
    run(tuned(), tmp_path)
    record = json.loads((tmp_path / "selection.json").read_text())
    assert {"rung", "candidate", "h", "beta", "epsilon", "init_scale", "validation_risk"} <= set(
        record["candidates"][0]
    )
    assert status(tmp_path)["step"] == record["chosen"]["steps"]
    stderr = capfd.readouterr().err
    numbers = {name: value for name, value in record["chosen"].items() if name != "confinement"}
    assert all(f"{name}={value:g}" in stderr for name, value in numbers.items())
    assert f"confinement={{w:{record['chosen']['confinement']['w']:g}}}" in stderr
    assert record["end"] in ("minimum", "step cap", "fewest steps")
    view = read_run_data(tmp_path)
    assert f"β={record['chosen']['beta']:g}" in view.title
    # The epsilon in use is measured anew at log-spaced steps, and logged.
    assert view.metrics["epsilon"].nunique() > 2
    measured = view.metrics["epsilon"].diff().fillna(0) != 0
    assert all(is_log_spaced(step - 1, 10) for step in view.metrics["step"][measured] if step < 10)


def test_the_selected_values_are_stated_and_the_config_stays_the_runs_own(reference):
    assert status(reference)["selected"] == chosen(reference)
    text = (reference / "config.yaml").read_text()
    keys = "beta, h, epsilon, steps, init_scale, confinement, horizon"
    assert text.startswith(f"# {keys}: null here, selected on the training part; status")
    config = RunFolder(reference).read_config()
    assert (config.beta, config.steps) == (None, None)
    assert digest(config) == digest(tuned())
    about = dict(PageBuilder([reference]).data()["runs"][0]["about"])
    assert f"beta={chosen(reference)['beta']}, h=" in about["selected"]


def test_what_is_given_is_not_said_to_be_selected(tmp_path):
    run(tuned(h=0.1, steps=2), tmp_path)
    assert set(status(tmp_path)["selected"]) == {"beta", "epsilon", "init_scale", "confinement", "horizon"}
    run(composed("dataset=sine", "N=5", "steps=1", "threads=1"), tmp_path / "paper")
    assert status(tmp_path / "paper")["selected"] == {}
    assert not (tmp_path / "paper" / "config.yaml").read_text().startswith("#")


def test_the_same_run_twice_has_the_same_bits(reference, tmp_path):
    run(tuned(), tmp_path)
    assert_same_run(tmp_path, reference)
    assert chosen(tmp_path) == chosen(reference)


def test_an_interrupted_run_goes_on_without_selecting_again(reference, tmp_path, monkeypatch):
    last = chosen(reference)["steps"]
    run(tuned(steps=last // 2), tmp_path)
    monkeypatch.setattr(selection, "select", None)
    run(tuned(), tmp_path)
    assert_same_run(tmp_path, reference)
    assert run(tuned(), tmp_path).already_finished
    assert run(tuned(steps=last + 3), tmp_path).step == last + 3


@pytest.mark.parametrize("damage", ["{", '{"format": "proxlearn-selection-1", "chosen": {"h": -1}}'])
def test_a_damaged_selection_is_made_again_before_the_first_step_and_refused_later(damage, reference, tmp_path):
    run(tuned(steps=0), tmp_path)
    (tmp_path / "selection.json").write_text(damage)
    run(tuned(), tmp_path)
    assert_same_run(tmp_path, reference)
    (tmp_path / "selection.json").write_text(damage)
    refused_unchanged(
        tuned(), tmp_path, r"selection\.json cannot be read: .*; restore it, or train again with overwrite"
    )


@pytest.mark.parametrize("steps", [0, 5])
def test_a_selection_of_a_newer_format_is_refused_by_name(steps, tmp_path):
    run(tuned(steps=steps), tmp_path)
    (tmp_path / "selection.json").write_text('{"format": "proxlearn-selection-2"}')
    newer = r"selection\.json was written by a newer version of proxlearn"
    refused_unchanged(tuned(steps=9), tmp_path, newer)
    with pytest.raises(InputError, match=newer):
        read_run_data(tmp_path)


def refused_unchanged(config, folder, match):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=match):
        run(config, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_checkpoints_of_another_choice_are_not_continued(reference, tmp_path):
    run(tuned(steps=5), tmp_path)
    path = tmp_path / "selection.json"
    record = json.loads(path.read_text())
    record["chosen"]["h"] *= 1.5
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"selection\.json was changed; restore it"):
        run(tuned(steps=9), tmp_path)


def test_a_signal_during_the_selection_stops_it(tmp_path, monkeypatch):
    original_select = selection.select

    def interrupted(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        return original_select(*args, **kwargs)

    monkeypatch.setattr(selection, "select", interrupted)
    with pytest.raises(ProxlearnError, match="stopped during the selection") as error:
        run(tuned(), tmp_path)
    assert error.value.exit_code == 128 + signal.SIGTERM
    assert not (tmp_path / "selection.json").exists()


def test_numbers_that_are_given_are_not_selected(tmp_path):
    config = tuned("h=0.25", "beta=500", "epsilon=0.3", "init_scale=1.5", "steps=6")
    assert config.selected == ()
    run(config, tmp_path)
    assert not (tmp_path / "selection.json").exists()


def test_the_paper_s_recipe_selects_nothing():
    with pytest.raises(
        InputError, match=r"h must be a finite number > 0, got null; set h=\.\.\., or use recipe=tuned, which selects h"
    ):
        composed("dataset=sine", "h=null")


VARIANTS = {
    "resampling": ("weights=fisher_rao", "resample=systematic", "ess_threshold=0.95"),
    "schedules": ("h_schedule=cosine", "beta_schedule=power", "horizon=30"),
    "batches": ("batch_size=9",),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_whatever_changes_along_the_way_a_resume_is_exact(variant, tmp_path):
    given = ("h=0.3", "beta=1e3", "epsilon=0.5", "init_scale=1", *VARIANTS[variant])
    uninterrupted, cut = tmp_path / "whole", tmp_path / "cut"
    run(tuned(*given, steps=37), uninterrupted)
    for steps in (4, 23, 37):
        run(tuned(*given, steps=steps), cut)
    assert_same_run(cut, uninterrupted)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_any_table_can_be_learnt_from(task, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    score = X @ [1.0, -2.0, 0.5]
    target = {"binary": score > 0, "multiclass": np.digitize(score, [-1.5, 1.5]), "regression": 7 + 3 * score}[task]
    rows = "\n".join(",".join(f"{value:.6f}" for value in x) + f",{y}" for x, y in zip(X, target, strict=True))
    path = tmp_path / "mine.csv"
    path.write_text(f"u,v,w,y\n{rows}\n")
    config = composed("dataset=csv", f"dataset.path={path}", "dataset.target=y", "recipe=tuned", "N=60", "threads=1")
    run(config, tmp_path / "run")
    figures = read_run_data(tmp_path / "run").accuracy.set_index(["part", "estimate"]).loc[("test", "weighted")]
    assert figures["r2"] > 0.95 if task == "regression" else figures["accuracy"] > 0.85
    neuron = json.loads((tmp_path / "run" / "model.json").read_text())["neuron"]
    assert neuron == ("tanh_outputs" if task == "multiclass" else "tanh")


def test_metrics_are_of_a_sample_of_rows_and_the_figures_at_the_end_of_all(tmp_path, capfd):
    given = ("h=0.3", "beta=1e3", "epsilon=0.5", "init_scale=1", "steps=6")
    run(tuned(*given, metric_rows=7), tmp_path / "sample")
    assert "the metrics of logged steps use 7 of the" in capfd.readouterr().err
    run(tuned(*given), tmp_path / "all")
    sample, whole = (read_run_data(tmp_path / name) for name in ("sample", "all"))
    assert (sample.metrics["train_risk_weighted"] != whole.metrics["train_risk_weighted"]).any()
    assert sample.accuracy.equals(whole.accuracy)


@pytest.mark.parametrize("loss", ["quadratic", "cross_entropy"])
def test_the_link_is_stored_and_predicts(loss, tmp_path):
    config = composed("dataset=wine", "recipe=tuned", f"loss={loss}", "N=20", "threads=1")
    run(config, tmp_path)
    slope = json.loads((tmp_path / "selection.json").read_text())["link_slope"]
    assert slope == json.loads((tmp_path / "model.json").read_text())["link_slope"]
    model = load_model(tmp_path)
    rows = np.random.default_rng(0).normal(size=(5, len(model.columns))) / model.scaler.factor + model.scaler.shift
    f = model.mean_outputs(rows)["weighted"]
    expected = np.exp(slope * f.numpy()) / np.exp(slope * f.numpy()).sum(axis=0)
    np.testing.assert_allclose(model.predict(rows).probabilities, expected.T, atol=1e-5)


@pytest.mark.parametrize("rows, size", [(10, None), (MOST_WHOLE_ROWS, None), (MOST_WHOLE_ROWS + 1, AUTO_BATCH)])
def test_batches_are_chosen_by_the_number_of_rows(rows, size):
    assert settings_from_config(tuned()).for_rows(rows).batch_size == size
    assert settings_from_config(tuned("batch_size=null")).for_rows(10**6).batch_size is None
