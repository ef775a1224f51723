"""Starting again in a run folder without losing the old run: the new one is made first, inside the folder, then placed.

    .proxlearn-new       the new run is being made; the old one is valid. Left by a killed process: deleted.
    .proxlearn-ready     the new run is durable up to its checkpoint of step 0; the old run's files are being deleted.
    .proxlearn-placing   they are gone; the new run's files are being moved to their places.

One rename leads from each stage to the next, so at every moment either the old or the new run is complete, and
``recover`` finishes what a killed process began. The stages lie inside the run folder: its lock covers them, files that
are not the run's stay where they are, and a folder that cannot be renamed (a mount point, a shell's working directory)
can be overwritten too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from proxlearn.run.files import sync_folder
from proxlearn.run.folder import RunFolder
from proxlearn.run.lock import FolderLock, InUse
from proxlearn.run.ownership import STAGING

NEW, READY, PLACING = STAGING


@contextlib.contextmanager
def new_run(folder: RunFolder) -> Iterator[RunFolder]:
    """A run folder to make the new run in; deleted at the end, unless ``place`` has moved it."""
    made = folder.path / NEW
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield RunFolder(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def place(folder: RunFolder) -> None:
    """Put the new run in the old one's place. The caller holds the lock; every file of the new run is on disk."""
    os.replace(folder.path / NEW, folder.path / READY)
    sync_folder(folder.path)
    _finish(folder)


def recover(folder: RunFolder) -> None:
    """Finish an overwrite that was interrupted, or take it back if it had not got that far. The caller has the lock."""
    _finish(folder)
    shutil.rmtree(folder.path / NEW, ignore_errors=True)


def recover_for_reading(path: Path) -> None:
    """The same for a command that only reads: where an overwrite was interrupted, and no process is at work."""
    if not any((path / stage).is_dir() for stage in (READY, PLACING)):
        return
    # A folder that cannot be written is read as it is.
    with contextlib.suppress(InUse, OSError), FolderLock(path):
        _finish(RunFolder(path))


def _finish(folder: RunFolder) -> None:
    ready, placing = folder.path / READY, folder.path / PLACING
    if ready.is_dir():
        folder.clear()
        sync_folder(folder.path)
        os.replace(ready, placing)
        sync_folder(folder.path)
    if placing.is_dir():
        folder.checkpoints.mkdir(exist_ok=True)
        # The checkpoints before the config and the status, which say that there is a run.
        for path in (*(placing / "checkpoints").glob("*"), *(path for path in placing.iterdir() if path.is_file())):
            os.replace(path, folder.path / path.relative_to(placing))
        sync_folder(folder.checkpoints)
        sync_folder(folder.path)
        shutil.rmtree(placing)
