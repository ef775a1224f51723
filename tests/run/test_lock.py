"""Two processes that use the same run folder."""

import fcntl
import json
import os
import signal
import time
import types

import filelock
import pytest

from proxlearn.errors import InputError
from proxlearn.run import lock as lock_module
from proxlearn.run.lock import FolderInUse, FolderLock, is_locked
from tests.small_runs import FORKSERVER, run, small


def hold(folder, seconds):
    with FolderLock(folder):
        (folder / "held").touch()
        time.sleep(seconds)


def held_by_another(folder):
    process = FORKSERVER.Process(target=hold, args=(folder, 60))
    process.start()
    while not (folder / "held").exists():
        time.sleep(0.01)
    (folder / "held").unlink()
    return process


def test_the_second_is_told_who_holds_the_folder_and_changes_nothing(tmp_path):
    run(small(steps=2), tmp_path)
    other = held_by_another(tmp_path)
    try:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(InputError, match=f"in use by process {other.pid} on .* since 20") as caught:
            run(small(steps=5, overwrite=True), tmp_path)
        assert caught.value.exit_code == 2
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.join()


def test_a_lock_left_by_a_dead_process_is_taken_over(tmp_path, capfd):
    other = held_by_another(tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert (tmp_path / ".lock").exists()
    assert run(small(steps=2), tmp_path).state == "finished"
    assert f"took over the folder from process {other.pid} on " in capfd.readouterr().err
    assert not (tmp_path / ".lock").exists()


def test_only_one_of_many_gets_in_while_others_leave(tmp_path):
    # The file is removed on leaving: no process may hold a lock on a file that is gone.
    with FolderLock(tmp_path):
        for _ in range(3):
            with pytest.raises(InputError, match=f"process {os.getpid()} "):
                FolderLock(tmp_path).__enter__()
    with FolderLock(tmp_path) as again:
        assert again.left_by is None


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 900, b'{"pid": "x"}', b'{"pid": 1e999, "host": 1}', b"7"])
def test_what_a_lock_file_of_a_run_holds_is_no_obstacle(content, tmp_path):
    run(small(steps=1), tmp_path)
    (tmp_path / ".lock").write_bytes(content)
    assert run(small(steps=2), tmp_path).state == "finished"


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid"', b'{"pid": 7, "host": "a'])
def test_a_lock_file_cut_off_by_a_full_disk_is_no_obstacle_to_a_new_run(content, tmp_path):
    (tmp_path / ".lock").write_bytes(content)
    assert run(small(steps=1), tmp_path).state == "finished"


def test_a_lock_file_of_another_program_is_kept(tmp_path):
    (tmp_path / ".lock").write_bytes(b"7")
    with pytest.raises(InputError, match="contains other files"):
        run(small(steps=1), tmp_path)
    assert (tmp_path / ".lock").read_bytes() == b"7"


def test_a_process_of_version_0_1_0_is_excluded_and_excludes(tmp_path):
    """That version calls flock on the same file and signs it in the same way."""
    path = tmp_path / ".lock"
    with path.open("w") as old:
        fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
        json.dump({"pid": 17, "host": "elsewhere", "since": "2026-01-01 00:00:00"}, old)
        old.flush()
        assert is_locked(tmp_path) is True
        with pytest.raises(FolderInUse, match="in use by process 17 on elsewhere since 2026"):
            FolderLock(tmp_path).__enter__()
    assert is_locked(tmp_path) is False
    with FolderLock(tmp_path), path.open("r+") as old:
        assert json.load(old)["pid"] == os.getpid()
        with pytest.raises(BlockingIOError):
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)


def contended(monkeypatch, attempts):
    """Let another process hold every lock for the next ``attempts`` attempts."""
    outcomes = iter([False] * attempts)

    def lock(handle, blocking):
        return next(outcomes, True) and filelock.lock_descriptor(handle, blocking=blocking)

    monkeypatch.setattr(lock_module, "lock_descriptor", lock)


@pytest.mark.parametrize("attempts", range(lock_module.LOCK_ATTEMPTS + 1))
def test_a_lock_held_for_an_instant_is_no_run(attempts, tmp_path, monkeypatch):
    (tmp_path / ".lock").touch()
    contended(monkeypatch, attempts)
    assert is_locked(tmp_path) is (attempts == lock_module.LOCK_ATTEMPTS)
    contended(monkeypatch, attempts)
    if attempts == lock_module.LOCK_ATTEMPTS:
        with pytest.raises(FolderInUse, match="in use by another process"):
            FolderLock(tmp_path).__enter__()
    else:
        with FolderLock(tmp_path):
            pass


def test_looking_at_a_lock_changes_nothing(tmp_path):
    path = tmp_path / ".lock"
    path.write_bytes(b'{"pid": 1, "host": "x", "since": "then"}')
    before = path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino
    assert is_locked(tmp_path) is False
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert is_locked(tmp_path / "absent") is False


def system(monkeypatch, **changes):
    """Replace ``os`` in the module."""
    monkeypatch.setattr(lock_module, "os", types.SimpleNamespace(**vars(os) | changes))


def test_the_lock_of_a_folder_that_cannot_be_written_is_seen(tmp_path, monkeypatch):
    def open_for_reading(path, flags):
        if flags & os.O_RDWR:
            raise PermissionError
        return os.open(path, flags)

    with FolderLock(tmp_path):
        system(monkeypatch, open=open_for_reading)
        assert is_locked(tmp_path) is True
        monkeypatch.undo()
    (tmp_path / ".lock").touch()
    system(monkeypatch, open=open_for_reading)
    assert is_locked(tmp_path) is False


def test_the_holder_is_named_where_its_lock_keeps_the_first_byte_from_being_read(tmp_path, monkeypatch):
    """On Windows, a locked byte cannot be read."""

    def read(handle, size):
        if os.lseek(handle, 0, os.SEEK_CUR) == 0:
            raise PermissionError
        return os.read(handle, size)

    with FolderLock(tmp_path):
        system(monkeypatch, read=read)
        with pytest.raises(FolderInUse, match=f"in use by process {os.getpid()} on "):
            FolderLock(tmp_path).__enter__()


def test_a_lock_is_removed_where_open_files_cannot_be(tmp_path, monkeypatch):
    """On Windows, the file is closed first, and a file that another process has opened meanwhile names no holder."""
    path = tmp_path / ".lock"
    system(monkeypatch, name="nt")
    with FolderLock(tmp_path):
        pass
    assert not path.exists()
    with FolderLock(tmp_path):
        kept = path.open("rb")
        monkeypatch.setattr(type(path), "unlink", lambda self: (_ for _ in ()).throw(PermissionError()))
    monkeypatch.undo()
    with kept:
        assert kept.read() == b""
    with FolderLock(tmp_path) as later:
        assert later.left_by is None
