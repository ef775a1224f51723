"""A run: the files in its folder, its continuation, and its switch from float32.

A run that is set to end earlier uses its checkpoint at that step and remembers the earlier number of steps.

Messages of commands that cannot start, and of runs that an overwrite would restart.
"""

from __future__ import annotations

import csv
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from proxlearn.cli import main
from proxlearn.config.run_name import run_name
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError, RunError, continue_command
from proxlearn.run import checkpoint, checkpoint_file
from proxlearn.run.train import train
from proxlearn.training.stepper import Stepper
from tests.conftest import config_of
from tests.small_runs import assert_same_run, run, small, status


def config(*overrides: str) -> TrainConfig:
    return config_of("N=30", "steps=40", "threads=1", *overrides)


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def cloud(folder: Path) -> checkpoint.Checkpoint:
    found = checkpoint.newest_valid(folder / "checkpoints")
    assert found is not None
    return found


def test_a_run_leaves_what_it_promises(tmp_path: Path) -> None:
    outcome = train(config(), tmp_path, "proxlearn train ...")
    assert outcome.state == "finished"
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.yaml", "status.json", "metrics.csv", "accuracy.csv", "confusion.csv", "model.json"} <= names
    assert {"train.log", "checkpoints"} <= names
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["state"], status["step"], status["steps"], status["threads"]) == ("finished", 40, 40, 1)
    for key in ("seconds", "versions", "engine", "data_sha256", "command"):
        assert status[key]
    stored = cloud(tmp_path)
    assert stored.cloud.theta.shape == (30, 32)
    assert (tmp_path / "checkpoints" / "cloud-000000040.safetensors").exists()
    model = json.loads((tmp_path / "model.json").read_text())
    assert (model["neuron"], len(model["columns"]), model["classes"]) == ("tanh", 30, ["benign", "malignant"])


def test_metrics_have_every_name_at_log_spaced_steps(tmp_path: Path) -> None:
    train(config("device.dtype=float64"), tmp_path, "")
    found = rows(tmp_path)
    assert [int(row["step"]) for row in found] == [*range(11), 11, 13, 14, 16, 18, 20, 22, 25, 28, 32, 35, 40]
    names = {f"{part}_{name}_{est}" for part in ("train", "test") for est in ("weighted", "unweighted")
             for name in ("risk", "accuracy", "log_loss", "risk_paper")}  # fmt: skip
    names |= {"test_accuracy_unweighted_saturated", "discrete_free_energy", "prox_objective_before", "ess", "mass"}
    names |= {"prox_objective_after", "kernel_offdiag", "weights_change", "entropy", "free_energy"}
    names |= {"sinkhorn_rounds", "sinkhorn_error", "sinkhorn_contraction", "converged"}
    assert names <= set(found[0])
    # Each step solves its convex problem: the objective cannot end above doing nothing.
    for row in found[1:]:
        before, after = float(row["prox_objective_before"]), float(row["prox_objective_after"])
        assert after <= before + 1e-12 * abs(before)
    # kappa = 50. One round has no contraction to measure (nan), and NaN fails no comparison that is written this way.
    measured = [float(row["sinkhorn_contraction"]) for row in found[1:]]
    assert any(ratio <= 1 / 51 + 1e-12 for ratio in measured)
    assert not any(ratio > 1 / 51 + 1e-12 for ratio in measured)
    assert all(float(r["mass"]) == pytest.approx(float(found[0]["mass"]), rel=1e-5) for r in found)
    for row in found:
        risk, entropy, energy = (float(row[name]) for name in ("train_risk_unweighted", "entropy", "free_energy"))
        assert energy == pytest.approx(risk - entropy / 0.05, rel=1e-12)


def test_a_notice_precedes_a_new_run_whose_step_cannot_see_the_risk(tmp_path: Path, capfd) -> None:
    train(config("steps=2"), tmp_path, "")
    assert capfd.readouterr().err.count("hardly depend on the risk") == 1
    assert json.loads((tmp_path / "status.json").read_text())["kappa"] == pytest.approx(50)
    train(config("steps=3"), tmp_path, "")
    assert "hardly depend on the risk" not in capfd.readouterr().err, "a continued run"
    for name, override in (("small", "epsilon=0.01"), ("uniform", "weights=uniform")):
        train(config("steps=2", override), tmp_path / name, "")
        assert "hardly depend on the risk" not in capfd.readouterr().err
    assert json.loads((tmp_path / "uniform" / "status.json").read_text())["kappa"] is None


def test_clouds_of_many_dimensions_have_no_entropy(tmp_path: Path) -> None:
    """SHD has 2560 parameters per particle, digits 660: more than a cloud of usual size can say something about."""
    train(config("dataset=digits", "steps=1"), tmp_path, "")
    assert {(row["entropy"], row["free_energy"]) for row in rows(tmp_path)} == {("", "")}


def test_regression_reports_rmse_and_r2(tmp_path: Path) -> None:
    train(config("dataset=sine", "log_every=10"), tmp_path, "")
    found = rows(tmp_path)
    assert [row["step"] for row in found] == ["0", "10", "20", "30", "40"]
    for row in found:
        assert float(row["test_rmse_weighted"]) == pytest.approx(float(row["test_risk_weighted"]) ** 0.5, rel=1e-5)
        assert float(row["train_r2_unweighted"]) <= 1
    assert not (tmp_path / "confusion.csv").exists()


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(config(f"seed={seed}"), tmp_path / name, "")
    a, b, c = (cloud(tmp_path / name).cloud for name in "abc")
    assert torch.equal(a.theta, b.theta)
    assert torch.equal(a.log_rho, b.log_rho)
    assert (tmp_path / "a" / "metrics.csv").read_bytes() == (tmp_path / "b" / "metrics.csv").read_bytes()
    assert not torch.equal(a.theta, c.theta)


def test_more_steps_continue_the_run_as_if_asked_for_at_first(tmp_path: Path) -> None:
    short, long = config("steps=17"), config("steps=40")
    train(short, tmp_path / "extended", "")
    train(long, tmp_path / "extended", "")
    train(long, tmp_path / "whole", "")
    assert torch.equal(cloud(tmp_path / "extended").cloud.theta, cloud(tmp_path / "whole").cloud.theta)
    assert torch.equal(cloud(tmp_path / "extended").cloud.log_rho, cloud(tmp_path / "whole").cloud.log_rho)
    assert (tmp_path / "extended" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()


def test_a_finished_run_is_recognised(tmp_path: Path) -> None:
    train(config(), tmp_path, "")
    before = os.stat(tmp_path / "metrics.csv").st_mtime_ns
    assert train(config(), tmp_path, "").already_finished
    assert os.stat(tmp_path / "metrics.csv").st_mtime_ns == before


def test_another_runs_folder_is_refused(tmp_path: Path) -> None:
    train(config(), tmp_path, "")
    with pytest.raises(InputError, match="other settings"):
        train(config("beta=0.06"), tmp_path, "")


def test_the_literal_solver_runs_and_agrees_at_first(tmp_path: Path) -> None:
    """Only a few steps in float64 are compared, because raw WDBC amplifies rounding errors."""
    for solver in ("literal", "closed_form"):
        train(config(f"solver={solver}", "steps=3", "device.dtype=float64"), tmp_path / solver, "")
    literal, ours = (cloud(tmp_path / solver).cloud for solver in ("literal", "closed_form"))
    torch.testing.assert_close(ours.theta, literal.theta, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.rho, literal.rho, rtol=1e-9, atol=0)
    assert rows(tmp_path / "literal")[-1]["sinkhorn_rounds"] == rows(tmp_path / "closed_form")[-1]["sinkhorn_rounds"]


DENSE = ("kernel=dense", "epsilon=0.004", "steps=25")
"""The kernel's diagonal underflows in float32, not in float64."""


def test_a_non_finite_value_stops_the_run_naming_step_quantity_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"rho is not finite after step \d+; use kernel=log"):
        train(config(*DENSE), tmp_path, "")
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "failed"


def test_jetson_goes_on_in_float64_from_the_last_good_cloud(tmp_path: Path) -> None:
    outcome = train(config(*DENSE, "device=jetson-float32-to-float64"), tmp_path, "")
    status = json.loads((tmp_path / "status.json").read_text())
    assert outcome.state == "finished"
    assert status["dtype"] == "float64"
    assert 1 <= status["switched_at"] <= 25
    stored = cloud(tmp_path)
    assert stored.switched_at == status["switched_at"]
    assert stored.cloud.theta.dtype == torch.float64
    assert bool(torch.isfinite(stored.cloud.log_rho).all())


def test_the_folders_name_is_the_configs(tmp_path: Path) -> None:
    made = config()
    assert run_name(made) == run_name(replace(made, steps=99))


STEPS = 60


class Killed(BaseException):
    pass


def config_target(steps):
    return small(steps=steps, log_every=7, checkpoint_every=5)


def run_until(killed_at, folder, patch):
    original_call = Stepper.__call__

    def advance(self, cloud):
        if cloud.step == killed_at:
            raise Killed
        return original_call(self, cloud)

    with patch.context() as context:
        context.setattr(Stepper, "__call__", advance)
        with pytest.raises(Killed):
            run(config_target(STEPS), folder)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(config_target(STEPS), folder)
    return folder


@pytest.mark.parametrize("killed_at", random.Random(3).sample(range(6, STEPS), 4))
def test_a_shorter_run_ends_at_its_checkpoint_and_goes_on_to_the_old_target(
    killed_at, uninterrupted, tmp_path, monkeypatch, capfd
):
    folder, short = tmp_path / "run", tmp_path / "short"
    run_until(killed_at, folder, monkeypatch)
    newest = checkpoint_file.list_checkpoints(folder / "checkpoints")[0][0]
    run(config_target(newest), short)
    with monkeypatch.context() as context:
        # No step has to be made again.
        context.setattr(Stepper, "__call__", None)
        assert run(config_target(newest), folder).step == newest
    assert f"an earlier command set steps={STEPS}, and the run now ends at step {newest}" in capfd.readouterr().err
    assert_same_run(folder, short)
    assert status(folder)["longest_steps"] == STEPS
    assert run(config_target(newest), folder).longest_steps == STEPS
    run(config_target(STEPS), folder)
    assert_same_run(folder, uninterrupted)


def test_resume_says_what_was_asked_for_before(tmp_path, monkeypatch, capsys):
    run_until(33, tmp_path, monkeypatch)
    assert main(["resume", str(tmp_path), "--steps", "28"]) == 2
    assert "is already at step 30" in capsys.readouterr().err
    assert main(["resume", str(tmp_path), "--steps", "40"]) == 0
    assert "steps=60 continues it" in capsys.readouterr().err
    assert main(["resume", str(tmp_path)]) == 0
    assert "already finished at step 40. To continue it, use steps=60, as requested earlier." in capsys.readouterr().out
    assert main(["resume", str(tmp_path), "--steps", "60"]) == 0
    assert status(tmp_path)["longest_steps"] == status(tmp_path)["step"] == 60


SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1"]


def test_a_removed_working_directory_is_named(tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["train", *SMALL]) == 2
    assert "the working directory has been removed" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)


def test_what_continues_a_run_is_never_to_start_it_again():
    assert continue_command(False) == "the same command"
    assert continue_command(True) == "the same command without overwrite=true"
