"""Which checkpoints a session may delete: its own, and those of earlier sessions under the very same settings."""

from dataclasses import replace

import pytest
from small_runs import run, small

from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.run.run_folder import RunFolder


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
