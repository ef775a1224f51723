"""A job in a separate process: whatever happens to it, its supervisor survives and reports it."""

import os
import signal
import time
from pathlib import Path

import pytest

from proxlearn.jobs.subprocess_job import run_in_subprocess
from proxlearn.run.signals import StopRequest


def ends_with(code):
    print("words", flush=True)
    return code


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def raises():
    raise ValueError("surprise")


def tells_where():
    Path("here").touch()
    return 0


def waits_for_a_signal(ready):
    with StopRequest() as stop:
        ready.touch()
        while stop.signal is None:
            time.sleep(0.01)
    return 128 + stop.signal


def job(target, *args, folder, stop=lambda: False):
    return run_in_subprocess(
        target, args, preload=("proxlearn.run.train",), log=folder / "log", directory=folder, stop=stop
    )


@pytest.mark.parametrize("code", [0, 1, 2])
def test_its_exit_code_and_its_words_come_back(tmp_path, code):
    assert job(ends_with, code, folder=tmp_path) == code
    assert (tmp_path / "log").read_text() == "words\n"


def test_a_kill_is_told_as_its_signal(tmp_path):
    assert job(kills_itself, folder=tmp_path) == -signal.SIGKILL


def test_a_surprise_is_in_the_log(tmp_path):
    assert job(raises, folder=tmp_path) == 1
    assert "ValueError: surprise" in (tmp_path / "log").read_text()


def test_it_works_where_the_command_was_given(tmp_path):
    assert job(tells_where, folder=tmp_path) == 0
    assert (tmp_path / "here").exists()


def test_told_to_stop_it_stops_in_good_order(tmp_path):
    ready = tmp_path / "ready"
    assert job(waits_for_a_signal, ready, folder=tmp_path, stop=ready.exists) == 128 + signal.SIGTERM


def supervise_for_ever(folder):
    job(waits_for_a_signal, folder / "ready", folder=folder)


def test_without_its_supervisor_it_stops_by_itself(tmp_path):
    from small_runs import FORKSERVER

    supervisor = FORKSERVER.Process(target=supervise_for_ever, args=(tmp_path,))
    supervisor.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    mine = children_in(tmp_path)
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.join()
    end = time.monotonic() + 20
    while children_in(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert mine
    assert not children_in(tmp_path)


def children_in(folder):
    """Return the processes that work in ``folder``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == folder and "Z" not in (entry / "stat").read_text().rpartition(")")[2][:3]:
                found.append(int(entry.name))
        except OSError:
            continue
    return found
