"""Two processes and one run folder."""

import os
import signal
import time

import pytest
from small_runs import FORKSERVER, run, small

from proxlearn.errors import InputError
from proxlearn.run.lock import FolderLock


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
    assert f"took the folder over from process {other.pid} on " in capfd.readouterr().err
    assert not (tmp_path / ".lock").exists()


def test_only_one_of_many_gets_in_while_others_leave(tmp_path):
    # The file is removed on leaving: nobody may hold a lock on a file that is gone.
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
    with pytest.raises(InputError, match="holds other files"):
        run(small(steps=1), tmp_path)
    assert (tmp_path / ".lock").read_bytes() == b"7"
