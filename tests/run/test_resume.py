"""A run that is interrupted, extended, restarted or started from another one equals an uninterrupted run."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch
from small_runs import assert_same_run, composed, run, small, status

from proxlearn.core.schedules import is_film, is_stored
from proxlearn.errors import InputError
from proxlearn.run import checkpoint, checkpoint_file

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """An uninterrupted run, whose last step is on no schedule."""
    folder = tmp_path_factory.mktemp("reference")
    run(small(steps=23, log_every=4), folder)
    return folder


def test_the_same_run_twice_has_the_same_bits(reference, tmp_path):
    run(small(steps=23, log_every=4), tmp_path)
    assert_same_run(tmp_path, reference)


@pytest.mark.parametrize("first", [0, 1, 7, 12, 20, 22])
def test_a_longer_run_is_as_if_asked_for_at_first(first, reference, tmp_path):
    assert run(small(steps=first, log_every=4), tmp_path).step == first
    run(small(steps=23, log_every=4), tmp_path)
    assert_same_run(tmp_path, reference)


def test_extending_1000_to_3000_gives_the_bits_of_3000(tmp_path):
    uninterrupted, extended = tmp_path / "whole", tmp_path / "extended"
    config = small(steps=3000, checkpoint_every=400)
    run(config, uninterrupted)
    for steps in (1000, 3000):
        run(replace(config, steps=steps), extended)
    assert_same_run(extended, uninterrupted)


def test_a_finished_run_is_recognised_and_left_alone(reference):
    before = {path: path.stat().st_mtime_ns for path in reference.rglob("*")}
    outcome = run(small(steps=23, log_every=4), reference)
    assert outcome.already_finished
    assert outcome.step == 23
    assert run(small(steps=5, log_every=4), reference).step == 23
    assert {path: path.stat().st_mtime_ns for path in reference.rglob("*")} == before


def test_overwrite_starts_again_and_is_for_once(reference, tmp_path):
    run(small(steps=40, seed=5), tmp_path)
    with pytest.raises(InputError, match=r"other settings.*overwrite=true"):
        run(small(steps=23, log_every=4), tmp_path)
    run(small(steps=23, log_every=4, overwrite=True), tmp_path)
    assert_same_run(tmp_path, reference)
    assert "overwrite: false" in (tmp_path / "config.yaml").read_text()
    assert {step for step, _ in checkpoint_file.list_checkpoints(tmp_path / "checkpoints")} <= set(range(24))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_after_the_step_and_the_run_goes_on_from_it(number, tmp_path):
    uninterrupted, stopped = tmp_path / "whole", tmp_path / "stopped"
    rows = stopped / "metrics.csv"

    def send():
        while not rows.exists() or rows.read_bytes().count(b"\n") < 4:
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
    outcome = run(small(steps=1_000_000, log_every=7, checkpoint_every=100), stopped)
    assert outcome.signal == number
    assert outcome.state == status(stopped)["state"] == "stopped"
    assert checkpoint.newest_valid(stopped / "checkpoints").cloud.step == outcome.step
    config = small(steps=outcome.step + 50, log_every=7, checkpoint_every=100)
    run(config, stopped)
    run(config, uninterrupted)
    assert_same_run(stopped, uninterrupted)


def test_a_run_asked_to_end_where_it_was_stopped_has_its_last_row(tmp_path):
    # A stop leaves a checkpoint without a row off the schedule: the row needs the step before it once more.
    uninterrupted, cut = tmp_path / "whole", tmp_path / "cut"
    run(small(steps=11, log_every=4), uninterrupted)
    run(small(steps=11, log_every=4), cut)
    (cut / "status.json").unlink()
    rows = (cut / "metrics.csv").read_bytes().splitlines(keepends=True)
    (cut / "metrics.csv").write_bytes(b"".join(rows[:-1]))
    run(small(steps=11, log_every=4), cut)
    assert_same_run(cut, uninterrupted)


def test_fewer_steps_than_made_are_refused_while_the_run_is_not_finished(reference, tmp_path):
    run(small(steps=23, log_every=4), tmp_path)
    (tmp_path / "status.json").unlink()
    with pytest.raises(InputError, match="already at step 23"):
        run(small(steps=9, log_every=4), tmp_path)
    run(small(steps=23, log_every=4), tmp_path)
    assert_same_run(tmp_path, reference)


@pytest.mark.parametrize("damage", ["cut", "edited"])
def test_rows_lost_from_outside_are_made_again(damage, reference, tmp_path):
    run(small(steps=17, log_every=4), tmp_path)
    metrics = tmp_path / "metrics.csv"
    content = metrics.read_bytes()
    metrics.write_bytes(content[: len(content) // 2] if damage == "cut" else content.replace(b"\n4,", b"\n5,"))
    run(small(steps=23, log_every=4), tmp_path)
    assert_same_run(tmp_path, reference)


def test_other_logging_on_the_way_changes_no_cloud(reference, tmp_path):
    run(small(steps=12, log_every=4), tmp_path)
    run(small(steps=23, log_every=3), tmp_path)
    continued, expected = (checkpoint.newest_valid(folder / "checkpoints") for folder in (tmp_path, reference))
    assert torch.equal(continued.cloud.theta, expected.cloud.theta)
    assert torch.equal(continued.generator, expected.generator)
    steps = [int(row.split(",")[0]) for row in (tmp_path / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == [0, 4, 8, 12, 15, 18, 21, 23]


def test_a_run_resumed_with_another_number_of_threads_has_the_bits_of_an_uninterrupted_one(tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    run(small(steps=9, threads=2), whole)
    run(small(steps=4, threads=2), part)
    run(small(steps=9, threads=1), part)
    assert status(part)["threads"] == 1
    continued, expected = (checkpoint.newest_valid(folder / "checkpoints") for folder in (part, whole))
    assert torch.equal(continued.cloud.theta, expected.cloud.theta)
    assert torch.equal(continued.cloud.log_rho, expected.cloud.log_rho)
    assert (part / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


@pytest.mark.parametrize("settings", [{"compile": "off"}, {"activation": "relu"}], ids=["eager", "relu"])
def test_a_run_in_plain_torch_keeps_its_threads_and_says_so(settings, tmp_path, capfd):
    run(small(steps=3, threads=1, **settings), tmp_path)
    run(small(steps=6, threads=2, **settings), tmp_path)
    assert status(tmp_path)["threads"] == torch.get_num_threads() == 1
    assert "the run keeps threads=1, with which it started" in capfd.readouterr().err


def test_changed_data_is_not_continued(tmp_path):
    run(small(steps=3), tmp_path)
    path = tmp_path / "status.json"
    path.write_text(path.read_text().replace(status(tmp_path)["data_sha256"], "0" * 64))
    with pytest.raises(InputError, match=r"data .* changed"):
        run(small(steps=6), tmp_path)


@pytest.mark.parametrize("keep", [1, 3])
def test_the_newest_checkpoints_and_those_for_films_are_kept(keep, tmp_path):
    run(small(steps=203, checkpoint_every=10, keep_checkpoints=keep), tmp_path)
    kept = [step for step, _ in checkpoint_file.list_checkpoints(tmp_path / "checkpoints")]
    stored = [step for step in range(204) if is_stored(step, 10, True) or step == 203][::-1]
    regular = [step for step in stored if step % 10 == 0]
    assert set(kept) == {step for step in stored if is_film(step)} | set(stored[:keep]) | set(regular[:keep])
    assert 0 in kept


def test_without_films_only_the_newest_and_the_newest_regular_checkpoint_stay(tmp_path):
    run(small(steps=203, checkpoint_every=10, keep_checkpoints=1, films=False), tmp_path)
    assert [step for step, _ in checkpoint_file.list_checkpoints(tmp_path / "checkpoints")] == [203, 200]


def test_float32_to_float64_is_recorded_ends_finite_and_resumes_exactly_across_the_switch(tmp_path):
    config = composed(
        "dataset=wdbc", "N=20", "epsilon=0.0115", "kernel=dense", "device=jetson-float32-to-float64", "threads=1"
    )
    config = replace(config, steps=45, checkpoint_every=10, log_every=10)
    uninterrupted = tmp_path / "whole"
    run(config, uninterrupted)
    switched_at = status(uninterrupted)["switched_at"]
    assert 1 < switched_at < 45
    assert status(uninterrupted)["dtype"] == "float64"
    for step, path in checkpoint_file.list_checkpoints(uninterrupted / "checkpoints"):
        cloud = checkpoint.load(path).cloud
        assert cloud.theta.dtype == (torch.float64 if step >= switched_at else torch.float32)
        assert bool(torch.isfinite(cloud.theta).all() and torch.isfinite(cloud.log_rho).all())
    for cut in (switched_at - 1, switched_at, switched_at + 5):
        folder = tmp_path / str(cut)
        run(replace(config, steps=cut), folder)
        run(config, folder)
        assert_same_run(folder, uninterrupted)


def test_init_from_starts_at_another_runs_newest_cloud(tmp_path):
    source, folder = tmp_path / "source", tmp_path / "run"
    run(small(steps=6), source)
    config = small(f"init_from={source}", "beta=0.7", "seed=3", steps=4)
    run(config, folder)
    first = checkpoint.load(checkpoint_file.checkpoint_path(folder / "checkpoints", 0)).cloud
    last = checkpoint.newest_valid(source / "checkpoints").cloud
    assert torch.equal(first.theta, last.theta)
    assert torch.equal(first.log_rho, last.log_rho)
    # The source may go on or go away: this run began where it began.
    for path in (source / "checkpoints").iterdir():
        path.unlink()
    assert run(replace(config, steps=8), folder).step == 8
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"the checkpoints of .* are missing"):
        run(replace(config, steps=9), folder)
    for name in ("metrics.csv", "status.json"):
        (folder / name).unlink()
    with pytest.raises(InputError, match="was not found"):
        run(replace(config, steps=9), folder)


def test_init_from_another_cloud_is_another_run(tmp_path):
    run(small(steps=3), tmp_path)
    names = []
    for steps in (4, 5):
        run(small(steps=steps), tmp_path)
        composed.cache_clear()
        names.append(small(f"init_from={tmp_path}").init_sha256)
    assert names[0] != names[1]


def test_init_from_a_cloud_that_does_not_fit_is_refused(tmp_path):
    run(small(steps=1), tmp_path / "source")
    config = small(f"init_from={tmp_path / 'source'}", N=9)
    with pytest.raises(
        InputError, match="N=8 and 3 parameters per particle, but this run needs N=9 and 3 parameters; set N=8"
    ):
        run(config, tmp_path / "run")
    with pytest.raises(InputError, match="no valid checkpoint"):
        small("init_from=nowhere")
