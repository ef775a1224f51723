"""Two runs in one folder on a file system without locks, which is simulated by the results of flock."""

import errno
import fcntl
import json
import os
import platform
import re
import signal
import time

import pytest

from proxlearn.errors import InputError
from proxlearn.run.lock import LOCKS_UNSUPPORTED, NAME, SILENT_SECONDS, FolderLock, is_locked
from tests.small_runs import FORKSERVER, run, small


def without_locks(patch, number=errno.ENOLCK):
    def flock(handle, operation):
        raise OSError(number, os.strerror(number))

    patch.setattr(fcntl, "flock", flock)


@pytest.fixture(autouse=True)
def no_locks(monkeypatch):
    without_locks(monkeypatch)


def hold(folder):
    without_locks(pytest.MonkeyPatch())
    with FolderLock(folder):
        (folder / "held").touch()
        time.sleep(60)


@pytest.fixture
def holder(tmp_path):
    process = FORKSERVER.Process(target=hold, args=(tmp_path,))
    process.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    (tmp_path / "held").unlink()
    yield process
    process.kill()
    process.join()


def test_the_second_run_is_told_who_holds_the_folder_and_writes_nothing(holder, tmp_path):
    owner = tmp_path / NAME
    with pytest.raises(
        InputError, match=f"in use by process {holder.pid} on .* since 20.*delete {re.escape(str(owner))}"
    ):
        run(small(steps=2), tmp_path)
    assert is_locked(tmp_path) is True
    assert {path.name for path in tmp_path.iterdir()} == {".lock", NAME}


def test_the_file_of_a_killed_run_on_this_host_is_taken_over(holder, tmp_path, capfd):
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert (tmp_path / NAME).exists()
    assert is_locked(tmp_path) is False
    assert run(small(steps=2), tmp_path).state == "finished"
    assert f"took over the folder from process {holder.pid} on " in capfd.readouterr().err
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("number", LOCKS_UNSUPPORTED)
def test_one_gets_in_and_the_next_one_after_it(number, tmp_path, monkeypatch):
    without_locks(monkeypatch, number)
    for _ in range(2):
        with FolderLock(tmp_path) as lock:
            assert lock.left_by is None
            with pytest.raises(InputError, match=f"process {os.getpid()} "):
                FolderLock(tmp_path).__enter__()
    assert not list(tmp_path.iterdir())


SIGNATURES = {
    "another host": json.dumps({"pid": 1, "host": "not-" + platform.node(), "since": "2026"}),
    "not signed": "",
    "nonsense": "[1",
    "a pid out of range": json.dumps({"pid": 10**30, "host": platform.node(), "since": "2026"}),
}


@pytest.mark.parametrize("kind", SIGNATURES)
def test_an_owner_that_cannot_be_looked_up_is_not_removed(kind, tmp_path):
    (tmp_path / NAME).write_text(SIGNATURES[kind])
    with pytest.raises(InputError, match="if the process is gone"):
        run(small(steps=1), tmp_path)
    assert (tmp_path / NAME).read_text() == SIGNATURES[kind]
    (tmp_path / NAME).unlink()
    assert run(small(steps=1), tmp_path).state == "finished"


@pytest.mark.parametrize("age", [SILENT_SECONDS + 5, -SILENT_SECONDS - 5])
def test_an_owner_without_a_sign_of_life_counts_as_gone_to_commands_that_only_look(age, tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / NAME).write_text(SIGNATURES["another host"])
    assert is_locked(tmp_path) is True
    os.utime(tmp_path / NAME, (time.time() - age, time.time() - age))
    assert is_locked(tmp_path) is False


def test_without_an_owner_it_is_not_known_whether_a_folder_is_in_use(tmp_path):
    (tmp_path / ".lock").touch()
    assert is_locked(tmp_path) is None
