"""A run folder that is shared with others: hard-linked backups, a moved folder, a removed lock."""

import os
import shutil

import pytest

from proxlearn.errors import RunError
from proxlearn.training.stepper import Stepper
from tests.small_runs import assert_same_run, run, small


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_backup_of_hard_links_stays_as_it_was(tmp_path):
    folder, backup = tmp_path / "run", tmp_path / "backup"
    run(small(steps=8, log_every=3), folder)
    shutil.copytree(folder, backup, copy_function=os.link)
    before = contents(backup)
    run(small(steps=20, log_every=3), folder)
    assert contents(backup) == before
    run(small(steps=20, log_every=3), tmp_path / "whole")
    assert_same_run(folder, tmp_path / "whole")


def at_step(monkeypatch, step, act):
    """Let another process call ``act`` once, just before the run's step ``step``."""
    advance = Stepper.__call__

    def acting(self, cloud):
        if cloud.step == step:
            monkeypatch.setattr(Stepper, "__call__", advance)
            act()
        return advance(self, cloud)

    monkeypatch.setattr(Stepper, "__call__", acting)


def test_a_process_whose_folder_was_moved_writes_nothing_into_the_run_made_there_since(tmp_path, monkeypatch):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def move():
        folder.rename(moved)
        run(small(steps=12, seed=7), folder)
        other.update(contents(folder))

    other = {}
    at_step(monkeypatch, 7, move)
    with pytest.raises(
        RunError, match="was moved, or its lock file was removed; resume the run from its current folder"
    ) as lost:
        run(small(steps=30), folder)
    assert lost.value.exit_code == 1
    assert other
    assert contents(folder) == other
    run(small(steps=30), moved)
    run(small(steps=30), tmp_path / "whole")
    assert (moved / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()


def test_a_process_whose_lock_was_removed_leaves_the_folder_to_the_next(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def take():
        (folder / ".lock").unlink()
        assert run(small(steps=30, log_every=1), folder).state == "finished"

    at_step(monkeypatch, 7, take)
    with pytest.raises(RunError, match="its lock file was removed"):
        run(small(steps=30, log_every=1), folder)
    run(small(steps=30, log_every=1), tmp_path / "whole")
    assert_same_run(folder, tmp_path / "whole")
