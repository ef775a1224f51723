"""A run that is set to end earlier uses its checkpoint at that step and remembers the earlier number of steps."""

import random

import pytest
from small_runs import assert_same_run, run, small, status

from proxlearn.cli import main
from proxlearn.run import checkpoint_file
from proxlearn.training.stepper import Stepper

STEPS = 60


class Killed(BaseException):
    pass


def config(steps):
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
            run(config(STEPS), folder)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(config(STEPS), folder)
    return folder


@pytest.mark.parametrize("killed_at", random.Random(3).sample(range(6, STEPS), 4))
def test_a_shorter_run_ends_at_its_checkpoint_and_goes_on_to_the_old_target(
    killed_at, uninterrupted, tmp_path, monkeypatch, capfd
):
    folder, short = tmp_path / "run", tmp_path / "short"
    run_until(killed_at, folder, monkeypatch)
    newest = checkpoint_file.list_checkpoints(folder / "checkpoints")[0][0]
    run(config(newest), short)
    with monkeypatch.context() as context:
        # No step has to be made again.
        context.setattr(Stepper, "__call__", None)
        assert run(config(newest), folder).step == newest
    assert f"the run was set to {STEPS} steps and now ends at {newest}" in capfd.readouterr().err
    assert_same_run(folder, short)
    assert status(folder)["longest_steps"] == STEPS
    assert run(config(newest), folder).longest_steps == STEPS
    run(config(STEPS), folder)
    assert_same_run(folder, uninterrupted)


def test_resume_says_what_was_asked_for_before(tmp_path, monkeypatch, capsys):
    run_until(33, tmp_path, monkeypatch)
    assert main(["resume", str(tmp_path), "--steps", "28"]) == 2
    assert "is already at step 30" in capsys.readouterr().err
    assert main(["resume", str(tmp_path), "--steps", "40"]) == 0
    assert "steps=60 continues it" in capsys.readouterr().err
    assert main(["resume", str(tmp_path)]) == 0
    assert "already finished at step 40. steps=60, as requested earlier," in capsys.readouterr().out
    assert main(["resume", str(tmp_path), "--steps", "60"]) == 0
    assert status(tmp_path)["longest_steps"] == status(tmp_path)["step"] == 60
