"""A checkpoint is used only if it is intact and belongs to this run."""

import random
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from proxlearn.core.cloud import PointCloud, Screen
from proxlearn.errors import RunError
from proxlearn.run import checkpoint, checkpoint_file
from proxlearn.run.checkpoint import Checkpoint, MetricsPosition
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints
from proxlearn.run.run_folder import RunFolder
from tests.small_runs import FULL, assert_same_run, run, small

pytestmark = pytest.mark.faults


def moment(**changes) -> Checkpoint:
    cloud = PointCloud(torch.arange(6.0).view(3, 2), torch.zeros(3), 7)
    base = Checkpoint(cloud, torch.arange(9, dtype=torch.uint8), "this run", 2, 5, MetricsPosition(10, "ab"))
    return replace(base, **changes)


def test_what_is_saved_is_loaded(tmp_path):
    screen = Screen(torch.rand(3, 2), 1 / 3)
    cloud = replace(moment().cloud, screen=screen)
    loaded = checkpoint.load(checkpoint.save(tmp_path, moment(cloud=cloud)))
    assert torch.equal(loaded.cloud.theta, moment().cloud.theta)
    assert torch.equal(loaded.cloud.screen.reference, screen.reference)
    assert loaded.cloud.screen.radius == screen.radius
    assert (loaded.unmet, loaded.switched_at, loaded.metrics, loaded.run) == (
        2,
        5,
        MetricsPosition(10, "ab"),
        "this run",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["cloud-000000007.safetensors"]


def test_any_safetensors_reader_can_open_it(tmp_path):
    tensors = safetensors.torch.load_file(checkpoint.save(tmp_path, moment()))
    assert torch.equal(tensors["theta"], moment().cloud.theta)
    assert torch.equal(tensors["rho"], torch.ones(3))


def test_the_same_moment_gives_the_same_bytes(tmp_path):
    blobs = {checkpoint.save(tmp_path, moment()).read_bytes() for _ in range(20)}
    assert len(blobs) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["theta", "log_rho", "reference"])
def test_nothing_that_is_not_finite_is_written(value, where, tmp_path):
    bad = torch.tensor([0.0, value, 0.0])
    cloud = moment().cloud
    changed = {
        "theta": {"cloud": replace(cloud, theta=bad[:, None].expand(3, 2))},
        "log_rho": {"cloud": replace(cloud, log_rho=bad)},
        "reference": {"cloud": replace(cloud, screen=Screen(bad[:, None].expand(3, 2), 1.0))},
    }[where]
    with pytest.raises(RunError, match="not finite at step 7"):
        checkpoint.save(tmp_path, moment(**changed))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, and the step of its newest checkpoint."""
    folder = tmp_path_factory.mktemp("made")
    run(small(steps=9), folder)
    return folder, checkpoint.newest_valid(folder / "checkpoints").cloud.step


def damaged_blobs(blob: bytes) -> list[bytes]:
    draw = random.Random(0)
    lengths = [0, 1, 7, 8, 9, len(blob) - 1] + [draw.randrange(len(blob)) for _ in range(44)]
    flips = []
    for position in [0, 7, 8, len(blob) - 1] + [draw.randrange(len(blob)) for _ in range(196)]:
        flipped = bytearray(blob)
        flipped[position] ^= draw.randrange(1, 256)
        flips.append(bytes(flipped))
    return [blob[:length] for length in lengths] + flips


def test_truncations_and_flipped_bytes_are_always_detected_and_the_one_before_is_used(finished):
    folder, newest_step = finished
    path = checkpoint_file.checkpoint_path(folder / "checkpoints", newest_step)
    blob = path.read_bytes()
    skipped = []
    try:
        blobs = damaged_blobs(blob)
        assert len(blobs) == 250
        for damaged in blobs:
            path.write_bytes(damaged)
            intact = checkpoint.newest_valid(folder / "checkpoints", lambda path, why: skipped.append(path.name))
            assert intact.cloud.step == 6
    finally:
        path.write_bytes(blob)
    assert skipped == [path.name] * 250


@pytest.mark.parametrize("index", range(250) if FULL else [0, 5, 20, 49, 50, 55, 120, 249])
def test_a_run_with_a_damaged_checkpoint_ends_the_same(index, finished, tmp_path, capfd):
    reference, _ = finished
    run(small(steps=8), tmp_path)
    path = checkpoint_file.checkpoint_path(tmp_path / "checkpoints", 8)
    path.write_bytes(damaged_blobs(path.read_bytes())[index])
    run(small(steps=9), tmp_path)
    assert f"proxlearn: skipping the checkpoint {path.name}: " in capfd.readouterr().err
    assert_same_run(tmp_path, reference)


def test_a_file_of_another_run_or_with_another_name_is_skipped(finished, tmp_path, capfd):
    reference, _ = finished
    run(small(steps=40, seed=1), tmp_path / "other")
    run(small(steps=4), tmp_path / "run")
    foreign = checkpoint_file.checkpoint_path(tmp_path / "run" / "checkpoints", 8)
    foreign.write_bytes(checkpoint_file.checkpoint_path(tmp_path / "other" / "checkpoints", 40).read_bytes())
    with pytest.raises(InvalidCheckpoint, match="name does not match"):
        checkpoint.load(foreign)
    foreign = checkpoint_file.checkpoint_path(tmp_path / "run" / "checkpoints", 6)
    foreign.write_bytes(checkpoint_file.checkpoint_path(tmp_path / "other" / "checkpoints", 6).read_bytes())
    run(small(steps=9), tmp_path / "run")
    assert "cloud-000000006.safetensors: the checkpoint belongs to another run" in capfd.readouterr().err
    assert_same_run(tmp_path / "run", reference)


def test_damaged_files_of_later_steps_push_out_no_good_one(tmp_path):
    run(small(steps=12, keep_checkpoints=1), tmp_path)
    for step in (90, 95, 100):
        checkpoint_file.checkpoint_path(tmp_path / "checkpoints", step).write_bytes(b"damaged")
    run(small(steps=17, keep_checkpoints=1), tmp_path)
    assert checkpoint.newest_valid(tmp_path / "checkpoints").cloud.step == 17


# Which checkpoints a session may delete: its own, and those of earlier sessions under the very same settings.
def steps_in(folder):
    return {step for step, _ in list_checkpoints(folder / "checkpoints")}


@pytest.mark.parametrize(
    "before, after",
    [
        ({"keep_checkpoints": 1000, "checkpoint_every": 3}, {}),
        ({"keep_checkpoints": 1000, "checkpoint_every": 3}, {"checkpoint_every": 3}),
        ({}, {"films": False}),
    ],
)
def test_what_was_stored_under_other_settings_stays_in_every_later_session(before, after, tmp_path):
    first = small(steps=20, **before)
    run(first, tmp_path)
    had = steps_in(tmp_path)
    later = small(**({"keep_checkpoints": 1} | after))
    for steps in (22, 26, 31, 40):
        run(replace(later, steps=steps), tmp_path)
        assert had <= steps_in(tmp_path)
    # What the later sessions wrote themselves is deleted by their own settings.
    own = steps_in(tmp_path) - had
    assert 40 in own
    assert not {22, 26, 31} & own


def test_settings_edited_in_the_config_or_an_unreadable_status_delete_nothing(tmp_path):
    run(small(steps=20, keep_checkpoints=1000, checkpoint_every=3), tmp_path)
    had = steps_in(tmp_path)
    config = RunFolder(tmp_path).config
    config.write_text(config.read_text().replace("keep_checkpoints: 1000", "keep_checkpoints: 1"))
    run(small(steps=25, keep_checkpoints=1, checkpoint_every=3), tmp_path)
    assert had <= steps_in(tmp_path)
    had = steps_in(tmp_path)
    RunFolder(tmp_path).status.write_text("{")
    run(small(steps=35, keep_checkpoints=1, checkpoint_every=3), tmp_path)
    assert had <= steps_in(tmp_path)


def test_under_the_same_settings_an_interrupted_run_keeps_no_more_than_it_needs(tmp_path):
    config = small(keep_checkpoints=2, films=False)
    for steps in (7, 13, 22, 31):
        run(replace(config, steps=steps), tmp_path)
    assert steps_in(tmp_path) == {25, 30, 31}


def test_a_run_that_overwrites_another_keeps_no_more_than_it_needs(tmp_path):
    run(small(steps=10), tmp_path)
    run(small(steps=31, keep_checkpoints=2, films=False, overwrite=True), tmp_path)
    assert steps_in(tmp_path) == {25, 30, 31}
