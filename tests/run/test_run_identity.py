"""A checkpoint of another run in the folder is not used by any reader, and is named in a notice."""

import json

import pytest
from small_runs import run, small

from proxlearn.predict.model_loader import load_model
from proxlearn.run import checkpoint_file, run_identity
from proxlearn.run.config_validation import newest_cloud_sha256
from proxlearn.run.run_folder import RunFolder
from proxlearn.views.film.cloud_history import clouds


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
    run_identity._warn_once.cache_clear()
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
