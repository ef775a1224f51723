"""Function calls in a separate process, so that a supervisor can record that the process was killed.

The processes are forked from a server that has imported torch and the views but has computed nothing, so that a process
starts in a fraction of a second and inherits no state from an earlier job.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from proxlearn.files.atomic import break_hard_links
from proxlearn.terminal.streams import open_standard_streams

POLL_SECONDS = 0.5
PROCESS_LOCK = threading.Lock()
"""Lock for starting processes and reading exit codes, because starting one also reads the exit codes of others."""


def run_in_subprocess(
    target: Callable[..., int],
    args: Sequence[Any],
    *,
    preload: Sequence[str],
    log: Path,
    directory: Path,
    stop: Callable[[], bool],
) -> int:
    """Run ``target(*args)`` in ``directory``; return its exit code, or the negative signal number if it was killed.

    Its output is appended to ``log``. When ``stop()`` becomes true, the process receives SIGTERM, and the function
    waits for its end.
    """
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        # A joblib worker has its own start method, which is unknown to a process that the worker starts.
        multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    process = context.Process(target=_child, args=(target, args, log, directory))
    with PROCESS_LOCK:
        process.start()
    stopping = False
    while not wait([process.sentinel], POLL_SECONDS):
        if not stopping and stop():
            process.terminate()
            stopping = True
    with PROCESS_LOCK:
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _child(target: Callable[..., int], args: Sequence[Any], log: Path, directory: Path) -> None:
    # A terminal sends Ctrl-C to all processes; only the supervisor stops this one, with SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    break_hard_links(log)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(handle, stream)
    if handle > 2:
        os.close(handle)
    # The log may be on a disk that becomes full; a lost line of output must not make the job fail.
    open_standard_streams()
    # Users' paths are relative to the directory of the command; a cluster may start processes elsewhere.
    with contextlib.suppress(OSError):
        os.chdir(directory)
    threading.Thread(target=_follow_parent, daemon=True).start()
    sys.exit(target(*args))


def _follow_parent() -> None:
    """Send SIGTERM to this process when its supervisor has ended, because nothing could record its end any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
