"""The state of a run, derived from its status and its lock."""

import json
import os
import platform
import signal
import time

import pytest
from small_runs import FORKSERVER, run, small, status

from proxlearn.cli import main
from proxlearn.run.lock import FolderLock, is_locked
from proxlearn.run.observed_status import SILENT_SECONDS, take_snapshot


def set_status(folder, **values):
    (folder / "status.json").write_text(json.dumps(status(folder) | values))


def hold(folder):
    with FolderLock(folder):
        (folder / "held").touch()
        time.sleep(60)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run(small(steps=10), folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    for name in ("status.json", "metrics.csv"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    return tmp_path


def test_a_finished_run_gives_its_metrics(folder):
    snapshot = take_snapshot(folder)
    assert (snapshot.state, snapshot.step, snapshot.steps) == ("finished", 10, 10)
    newest = (folder / "metrics.csv").read_text().splitlines()[-1].split(",")
    assert repr(snapshot.newest["test_risk_weighted"]) in newest
    assert snapshot.rate == pytest.approx(10 / status(folder)["seconds"])


def test_running_with_a_held_lock_is_running_and_after_a_kill_dead(folder):
    set_status(folder, state="running", step=4, seconds=60.0, rate=2.0)
    other = FORKSERVER.Process(target=hold, args=(folder,))
    other.start()
    while not (folder / "held").exists():
        time.sleep(0.01)
    assert is_locked(folder) is True
    assert take_snapshot(folder).state == "running"
    assert take_snapshot(folder).seconds_left == pytest.approx(3.0)
    # While the first step waits for its compilation, the rate is unknown.
    set_status(folder, step=1, seconds=60.0, rate=None)
    assert take_snapshot(folder).seconds_left is None
    # A run of version 0.1.0 stores its seconds only.
    old = status(folder) | {"step": 4, "seconds": 2.0}
    del old["rate"]
    (folder / "status.json").write_text(json.dumps(old))
    assert take_snapshot(folder).seconds_left == pytest.approx(3.0)
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert (folder / ".lock").exists()
    assert take_snapshot(folder).state == "dead"


def test_on_another_machine_an_old_status_means_dead(folder):
    set_status(folder, state="running", host="not-" + platform.node())
    assert take_snapshot(folder).state == "running"
    long_ago = time.time() - SILENT_SECONDS - 5
    os.utime(folder / "status.json", (long_ago, long_ago))
    assert take_snapshot(folder).state == "dead"


@pytest.mark.parametrize("ahead", [SILENT_SECONDS + 5, 3600, 10 * 365 * 86400])
@pytest.mark.parametrize("locked", [False, True])
def test_a_time_stamp_in_the_future_does_not_mean_running(ahead, locked, folder):
    # A host that was renamed, simulated by another name in the status; its clock was wrong.
    set_status(folder, state="running", host="not-" + platform.node())
    if locked:
        (folder / ".lock").touch()
    os.utime(folder / "status.json", (time.time() + ahead, time.time() + ahead))
    assert take_snapshot(folder).state == "dead"
    # Clocks of machines differ a little.
    os.utime(folder / "status.json", (time.time() + 30, time.time() + 30))
    assert take_snapshot(folder).state == "running"


def test_an_incomplete_row_is_ignored(folder):
    before = take_snapshot(folder).newest
    with (folder / "metrics.csv").open("a") as file:
        file.write("11,0.5,0.")
    assert take_snapshot(folder).newest == before


MALFORMED = ["", "{", "[]", '{"state": 3}', '{"step": "x", "state": "finished"}', '{"step": 1e400}']


@pytest.mark.parametrize("content", MALFORMED)
def test_a_malformed_status_is_unreadable(folder, content):
    (folder / "status.json").write_text(content)
    assert take_snapshot(folder).state == "unreadable"


def test_a_snapshot_does_not_keep_a_run_from_starting(tmp_path):
    for _ in range(200):
        with FolderLock(tmp_path):
            assert is_locked(tmp_path) is True
        assert is_locked(tmp_path) is False


def test_status_names_the_step_of_its_metrics(folder, capsys):
    """The status of a failed run is up to two seconds older than its rows."""

    def status_table():
        assert main(["status", str(folder)]) == 0
        head, line, blank, note = capsys.readouterr().out.splitlines()
        assert (blank, note.partition(":")[0]) == ("", "kappa = beta epsilon / h")
        return head.split(), line.split()

    assert "logged" not in status_table()[0]
    set_status(folder, state="failed", step=3, error="it")
    head, line = status_table()
    assert (line[head.index("step")], line[head.index("logged")]) == ("3", "10")
