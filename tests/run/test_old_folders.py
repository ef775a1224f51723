"""Folders of version 0.1.0 can be opened, drawn, used for predictions and resumed by newer versions.

tests/fixtures/version_0_1_0.tar.xz holds five run folders that version 0.1.0 wrote; they must not be rewritten. Each
is a small run that a signal stopped half-way, beside the metrics of the same command left alone
(``NAME-uninterrupted.csv``). Together they cover the tanh and softmax neurons, recipe=tuned with its selection,
schedules of h and beta, and the switch from float32 to float64.

The numbers in a row of metrics.csv are those of the step that led to it; rows of version 0.1.0 are converted.

A checkpoint of another run in the folder is not used by any reader, and is named in a notice.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from proxlearn.cli import main
from proxlearn.config.run_name import run_name
from proxlearn.core.metrics import discrete_free_energy
from proxlearn.core.schedules import hyper_for_step, with_measured_epsilon
from proxlearn.core.step import REVISION
from proxlearn.predict.model import load_model
from proxlearn.run import checkpoint, checkpoint_file, observers, resume_point
from proxlearn.run.checkpoint import Checkpoint
from proxlearn.run.config_validation import newest_cloud_sha256
from proxlearn.run.metrics import HYPER_COLUMNS, measure, metrics_file_version
from proxlearn.run.run_folder import RunFolder
from proxlearn.training.stepper import Stepper
from proxlearn.views.film.cloud_history import clouds
from proxlearn.views.run.run_data import read_run_data
from tests.conftest import OLD_FOLDERS
from tests.run.test_bad_overwrites import Failing
from tests.small_runs import FORKSERVER, composed, run, small


@pytest.fixture(params=OLD_FOLDERS, ids=[folder.name for folder in OLD_FOLDERS])
def folder(request, old_folders, tmp_path, monkeypatch) -> Path:
    """A copy of a folder at the path where the command that created it would look for it."""
    shutil.copytree(old_folders / request.param, tmp_path / request.param)
    monkeypatch.chdir(tmp_path)
    return request.param


def command_of(folder: Path) -> list[str]:
    return shlex.split(json.loads((folder / "status.json").read_text())["command"])[1:]


def test_the_name_still_follows_from_the_config(folder):
    assert run_name(RunFolder(folder).read_config()) == folder.name


def test_the_same_command_finds_the_folder_and_continues_it_with_a_notice(folder, old_folders, capfd):
    """Noise and rounding have changed since revision 2, but the stored part of the run is kept."""
    before = (folder / "metrics.csv").read_text().splitlines()
    stopped_at = json.loads((folder / "status.json").read_text())["step"]
    # The defaults of recipe=tuned were others in version 0.1.0.
    old = ["loss=quadratic", "confinement=0", "h_schedule=constant", "horizon=1000", "batch_size=null"]
    old = [*old, "selection_rows=null"] if folder.name.startswith("tuned") else []
    assert main([*command_of(folder), *old]) == 0, capfd.readouterr().err
    notice = f"was computed by revision 1 of the recursion; the run continues with revision {REVISION}"
    assert notice in capfd.readouterr().err
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "finished"
    assert status["step"] > stopped_at
    metrics = pd.read_csv(folder / "metrics.csv")
    assert len(metrics) > len(before) - 1
    expected = pd.read_csv(old_folders / f"{folder}-uninterrupted.csv")
    assert list(metrics["step"]) == list(expected["step"])
    stored = expected["step"] <= stopped_at
    assert 0 < stored.sum() < len(expected)
    # A file keeps the columns that it began with, up to the order of those that version 2 of the file moved.
    assert set(metrics.columns) == set(before[0].split(","))
    risk = metrics["test_risk_weighted"]
    np.testing.assert_allclose(risk[stored], expected["test_risk_weighted"][stored], rtol=1e-6)
    assert risk.notna().all()


def test_a_stopped_folder_is_drawn_reported_and_listed(folder, capfd):
    for command in (["plot", str(folder)], ["report", str(folder), "-o", "page.html"], ["status", str(folder)]):
        assert main(command) == 0, capfd.readouterr().err
    assert (folder / "risk.png").stat().st_size > 1000
    assert Path("page.html").stat().st_size > 10_000
    assert "stopped" in capfd.readouterr().out


def test_a_stopped_folder_predicts(folder, capfd):
    model = json.loads((folder / "model.json").read_text())
    rows = pd.DataFrame(np.zeros((3, len(model["columns"]))), columns=model["columns"])
    rows.to_csv("new.csv", index=False)
    assert main(["predict", str(folder), "--data", "new.csv", "-o", "predictions.csv"]) == 0, capfd.readouterr().err
    assert len(pd.read_csv("predictions.csv")) == 3


STEPS = 37
SCHEDULES = ("h_schedule=cosine", "beta_schedule=power", "horizon=30")
VARIANTS = {
    "schedules": SCHEDULES,
    "schedules and an absolute epsilon": (*SCHEDULES, "epsilon_quantile=null"),
    "relative epsilon": ("h_schedule=constant", "horizon=1000"),
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
    prepare = Stepper._prepare

    def spied(self, cloud, rows):
        used[cloud.step + 1] = hyper_for_step(self.hyper, cloud)
        return prepare(self, cloud, rows)

    monkeypatch.setattr(Stepper, "_prepare", spied)
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


def steps_in(folder):
    return [cloud.step for cloud in clouds(folder)]


@pytest.mark.parametrize("old", [False, True])
def test_a_reader_skips_the_checkpoint_of_another_run_by_name(old, tmp_path, capfd):
    folder, other = tmp_path / "run", tmp_path / "other"
    run(small(steps=10), folder)
    run(small(steps=20, seed=7), other)
    if old:
        # A status of version 0.1.0 does not hold the identity.
        values = json.loads(RunFolder(folder).status.read_text())
        del values["run"]
        RunFolder(folder).status.write_text(json.dumps(values))
    before, steps = newest_cloud_sha256(folder), steps_in(folder)
    for step in (6, 20):
        path = checkpoint_file.checkpoint_path(other / "checkpoints", step)
        checkpoint_file.checkpoint_path(folder / "checkpoints", step).write_bytes(path.read_bytes())
    resume_point._warn_once.cache_clear()
    capfd.readouterr()
    assert load_model(folder).cloud.step == 10
    assert "skipping the checkpoint cloud-000000020.safetensors: it belongs to another run" in capfd.readouterr().err
    assert newest_cloud_sha256(folder) == before
    assert steps_in(folder) == [step for step in steps if step != 6]
    assert "cloud-000000006.safetensors" in capfd.readouterr().err


def test_where_nothing_tells_the_run_every_whole_checkpoint_counts(tmp_path):
    run(small(steps=10), tmp_path)
    RunFolder(tmp_path).status.unlink()
    assert load_model(tmp_path).cloud.step == 10
