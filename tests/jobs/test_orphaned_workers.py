"""A worker ends soon after its parent process is killed, but not before its job has been recorded."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORKER = """
import os, sys, time
from pathlib import Path
from proxlearn.jobs import orphaned_workers
orphaned_workers.POLL_SECONDS = 0.05
orphaned_workers.end_with_parent(int(sys.argv[1]))
folder = Path(sys.argv[2])
(folder / "pid").write_text(str(os.getpid()))
if sys.argv[3] == "busy":
    with orphaned_workers.JOB_RUNNING:
        while not orphaned_workers.is_orphaned():
            time.sleep(0.01)
        time.sleep(0.5)
        (folder / "stored").touch()
time.sleep(600)
"""
COMMAND = (
    "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], str(os.getpid()), *sys.argv[2:]])"
)


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


@pytest.mark.parametrize("work", ["idle", "busy"])
def test_a_worker_ends_after_its_command(work, tmp_path):
    command = subprocess.Popen([sys.executable, "-c", COMMAND, WORKER, str(tmp_path), work])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.02)
    pid = int((tmp_path / "pid").read_text())
    time.sleep(0.3)
    assert is_alive(pid)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    end = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_alive(pid)
    assert (tmp_path / "stored").exists() == (work == "busy")
