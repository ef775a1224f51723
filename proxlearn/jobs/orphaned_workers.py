"""Worker processes that a launcher keeps between jobs; they end soon after the command that started them has died.

A command that is killed cannot stop its workers. Without this module, joblib's workers would complete the jobs that
they were given and wait minutes for more; each of them holds half a gigabyte.
"""

from __future__ import annotations

import os
import threading
import time

POLL_SECONDS = 1.0
JOB_RUNNING = threading.Lock()
"""Lock that is held while a job is supervised, so that a worker ends only after the results of its job are stored."""
_orphaned = threading.Event()


def is_orphaned() -> bool:
    """Return whether this process is a worker whose command has died; its job then stops, and no other job begins."""
    return _orphaned.is_set()


def end_with_parent(parent: int) -> None:
    """End this process after its parent process has ended; a thread watches the parent on any platform."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    _orphaned.set()
    with JOB_RUNNING:
        os._exit(1)
