"""A job in a process of its own, under whatever launcher: it can be killed, and whoever started it lives to tell.

The processes are forked from a server that has imported torch and the views and has computed nothing, so that one
starts in a fraction of a second and inherits no state from the job before it.
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
"""How a process ended can be read once, and whoever starts another one looks too: of two threads one would learn it."""


def run_in_subprocess(
    target: Callable[..., int],
    args: Sequence[Any],
    *,
    preload: Sequence[str],
    log: Path,
    directory: Path,
    stop: Callable[[], bool],
) -> int:
    """The exit code of ``target(*args)`` run in ``directory``, its words appended to ``log``; -9 if it was killed.

    As soon as ``stop()`` holds, it is told to stop by a SIGTERM, and waited for.
    """
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        # A worker of joblib's has a way of its own, which a process started from it would look for in vain.
        multiprocessing.set_start_method("forkserver", force=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    process = context.Process(target=_child, args=(target, args, log, directory))
    with PROCESS_LOCK:
        process.start()
    told = False
    while not wait([process.sentinel], POLL_SECONDS):
        if not told and stop():
            process.terminate()
            told = True
    with PROCESS_LOCK:
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _child(target: Callable[..., int], args: Sequence[Any], log: Path, directory: Path) -> None:
    # A terminal sends Ctrl-C to everybody; the supervisor alone decides, and says it with SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    break_hard_links(log)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(handle, stream)
    if handle > 2:
        os.close(handle)
    # The log may be on a disk that gets full: the job's words are no reason for it to fail.
    open_standard_streams()
    # User's paths are relative to where the command was given, wherever a cluster starts its processes.
    with contextlib.suppress(OSError):
        os.chdir(directory)
    threading.Thread(target=_follow_parent, daemon=True).start()
    sys.exit(target(*args))


def _follow_parent() -> None:
    """Stop in good order when the supervisor has died: a job without one would be nobody's."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
