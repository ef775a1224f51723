"""The numbers in a row of metrics.csv are those of the step that led to it; rows of version 0.1.0 are converted."""

import shutil

import numpy as np
import pandas as pd
import pytest
from small_runs import FORKSERVER, composed, run

from proxlearn.core.metrics import discrete_free_energy
from proxlearn.core.schedules import hyper_for_step, with_measured_epsilon
from proxlearn.run import checkpoint, checkpoint_file, observers
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.metrics import HYPER_COLUMNS, measure, metrics_file_version
from proxlearn.training.stepper import Stepper
from proxlearn.views.run.run_data import read_run_data
from tests.run.test_faults import Failing

STEPS = 37
SCHEDULES = ("h_schedule=cosine", "beta_schedule=power", "horizon=30")
VARIANTS = {
    "schedules": SCHEDULES,
    "schedules and an absolute epsilon": (*SCHEDULES, "epsilon_quantile=null"),
    "relative epsilon": (),
    "no proximal step": ("weights=uniform", *SCHEDULES),
}


def config(variant, *overrides, steps=STEPS):
    given = ("h=0.3", "beta=1e3", "epsilon=0.5", "init_scale=1", "checkpoint_every=7", *VARIANTS[variant])
    return composed(
        "dataset=sine", "recipe=tuned", "N=12", "dataset.points=24", "threads=1", *given, *overrides, f"steps={steps}"
    )


def old_measure(problem, parts, cloud, proximal, hyper, divided=False):
    """Return a row as version 0.1.0 wrote it."""
    row = measure(problem, parts, cloud, proximal, hyper, divided)
    hyper = hyper_for_step(hyper, with_measured_epsilon(hyper, cloud))
    risk = cloud.log_rho.new_tensor(row["train_risk_weighted"])
    row["discrete_free_energy"] = float(discrete_free_energy(risk, cloud.log_rho, hyper.beta))
    row = {name: value for name, value in row.items() if name not in HYPER_COLUMNS}
    return row | {name: getattr(hyper, name) for name in HYPER_COLUMNS}


def old_run(configured, folder, patch):
    """Create a folder of version 0.1.0: its rows, and checkpoints without the metrics of their step."""
    saved = checkpoint.save
    with patch.context() as context:
        context.setattr(observers, "measure", old_measure)
        context.setattr(
            checkpoint,
            "save",
            lambda folder, now, *rest: saved(folder, Checkpoint(**vars(now) | {"proximal": None}), *rest),
        )
        run(configured, folder)


def rows(folder):
    return pd.read_csv(folder / "metrics.csv", dtype=str, keep_default_na=False)


def assert_same_rows(converted_checkpoint, reference):
    assert list(converted_checkpoint.columns) == list(reference.columns)
    exact = [name for name in converted_checkpoint.columns if name != "discrete_free_energy"]
    pd.testing.assert_frame_equal(converted_checkpoint[exact], reference[exact])
    # With another beta it is computed again from the digits in the file.
    energies = (frame["discrete_free_energy"].astype(float) for frame in (converted_checkpoint, reference))
    np.testing.assert_allclose(*energies, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_numbers_of_a_row_are_those_its_step_was_made_with(variant, tmp_path, monkeypatch):
    used = {}
    recurse = Stepper._recurse

    def spied(self, cloud, *randomness):
        used[cloud.step + 1] = hyper_for_step(self.hyper, cloud)
        return recurse(self, cloud, *randomness)

    monkeypatch.setattr(Stepper, "_recurse", spied)
    run(config(variant, "log_every=1"), tmp_path)
    table = pd.read_csv(tmp_path / "metrics.csv", index_col="step")
    assert table.loc[0, list(HYPER_COLUMNS)].isna().all()
    for step in range(1, STEPS + 1):
        assert tuple(table.loc[step, list(HYPER_COLUMNS)]) == tuple(getattr(used[step], name) for name in HYPER_COLUMNS)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cut", [5, 20])
def test_an_old_folder_is_converted_and_goes_on_as_if_made_today(variant, cut, tmp_path, monkeypatch):
    unbroken, old = tmp_path / "whole", tmp_path / "old"
    run(config(variant), unbroken)
    old_run(config(variant, steps=cut), old, monkeypatch)
    first_line = (old / "metrics.csv").read_text().splitlines()[0]
    assert metrics_file_version(first_line) == 1
    old_metrics = read_run_data(old).metrics
    unconverted = (old / "metrics.csv").read_bytes()
    run(config(variant), old)
    assert_same_rows(rows(old), rows(unbroken))
    # The view of the old folder is what the conversion has made of its scheduled rows.
    scheduled = old_metrics[old_metrics["step"].isin(rows(unbroken)["step"].astype(int))].reset_index(drop=True)
    converted = read_run_data(old).metrics.iloc[: len(scheduled)]
    pd.testing.assert_frame_equal(scheduled, converted, check_dtype=False)
    for step, _ in checkpoint_file.list_checkpoints(unbroken / "checkpoints"):
        converted_checkpoint, reference = (
            checkpoint.load(checkpoint_file.checkpoint_path(path / "checkpoints", step)) for path in (old, unbroken)
        )
        assert (converted_checkpoint.cloud.theta == reference.cloud.theta).all()
        assert (converted_checkpoint.generator == reference.generator).all()
    # Checkpoints of before the conversion stay good: the newer ones are lost here.
    for step, path in checkpoint_file.list_checkpoints(old / "checkpoints"):
        if step > 4:
            path.unlink()
    run(config(variant, steps=STEPS + 5), old)
    run(config(variant, steps=STEPS + 5), unbroken)
    assert_same_rows(rows(old), rows(unbroken))
    assert unconverted != (old / "metrics.csv").read_bytes()


def test_what_neither_rows_nor_checkpoints_tell_is_empty_and_never_wrong(tmp_path, monkeypatch):
    sparse, dense = tmp_path / "sparse", tmp_path / "dense"
    run(config("relative epsilon", "log_every=1"), dense)
    old_run(config("relative epsilon", "log_every=10", "films=false", steps=20), sparse, monkeypatch)
    run(config("relative epsilon", "log_every=10", "films=false"), sparse)
    truth = rows(dense).set_index("step")["epsilon"]
    epsilons = rows(sparse).set_index("step")["epsilon"]
    assert epsilons["10"] == ""
    assert {step: value for step, value in epsilons.items() if value} == {
        step: truth[step] for step, value in epsilons.items() if value
    }
    assert epsilons["20"] == truth["20"]


def die_in_conversion(at, folder):
    Failing(pytest.MonkeyPatch(), at, "death")
    run(config("schedules"), folder)


def test_killed_during_the_conversion_the_run_goes_on_exactly(tmp_path, monkeypatch):
    old, converted = tmp_path / "old", tmp_path / "converted"
    old_run(config("schedules", steps=20), old, monkeypatch)
    shutil.copytree(old, converted)
    run(config("schedules"), converted)
    # The conversion's calls are among the first: the marks, then the file itself, each opened, written and renamed.
    for at in (9, 11, 13, 15, 17, 19, 22):
        folder = tmp_path / str(at)
        shutil.copytree(old, folder)
        process = FORKSERVER.Process(target=die_in_conversion, args=(at, folder))
        process.start()
        process.join()
        assert process.exitcode == 9
        run(config("schedules"), folder)
        assert (folder / "metrics.csv").read_bytes() == (converted / "metrics.csv").read_bytes()
