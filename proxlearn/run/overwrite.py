"""Functions that overwrite a run; the old run is kept until the new one is on disk.

The new run is created in a staging folder inside the run folder, and is then exchanged with the old run. There are four
staging folders:

    .proxlearn-new      contains the new run while it is created; the old run is still valid.
    .proxlearn-ready    contains the new run when it is on disk up to its checkpoint of step 0.
    .proxlearn-old      contains the old run's files, which are moved here before the new files leave .proxlearn-ready.
    .proxlearn-placed   is .proxlearn-ready, renamed when it is empty; .proxlearn-old can then be deleted.

Nothing is deleted before the rename from "ready" to "placed". If the process fails or is killed before this
rename, the exchange is undone, and the old run remains. To make this possible, the names of the files in "ready" are
first listed in .proxlearn-old. The staging folders are inside the run folder, so that its lock covers them, files of
the user are not moved, and a folder that cannot be renamed (a mount point, the working directory of a shell) can be
overwritten as well. Only a process that has locked the folder completes or undoes an overwrite; a command that only
reads changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from proxlearn.errors import InputError, RunError
from proxlearn.files.atomic import disk_errors_as_run_error, is_temporary, remove_temporaries, sync_folder, write_json
from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.run.checkpoint_file import valid_checkpoints
from proxlearn.run.folder_recognition import STAGES
from proxlearn.run.lock import FolderLock, FolderLost, is_locked
from proxlearn.run.run_folder import RunFolder

NEW, READY, OLD, PLACED = STAGES
NEW_FILES_LIST = "new-files.json"
"""Name of the file in .proxlearn-old that lists the files of the new run."""
SWAP_SECONDS = 2.0
"""Maximum time in seconds that a reader waits while another process exchanges the runs; an exchange takes
milliseconds.
"""


@contextlib.contextmanager
def staged_run(folder: RunFolder) -> Iterator[RunFolder]:
    """Yield a folder inside ``folder`` for the new run; delete it at the end, unless ``swap_in`` has moved it."""
    stage = folder.path / NEW
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir()
    try:
        yield RunFolder(stage, folder.require_held)
    finally:
        # If another process has taken over the folder, the staging folder in it belongs to that process.
        with contextlib.suppress(FolderLost):
            folder.require_held()
            shutil.rmtree(stage, ignore_errors=True)


def swap_in(folder: RunFolder) -> None:
    """Replace the old run with the new one; after a failure, restore the old one and raise the error again.

    The caller holds the lock, and every file of the new run is on disk.
    """
    new, ready, old, placed = (folder.path / stage for stage in STAGES)
    try:
        os.replace(new, ready)
        sync_folder(folder.path)
        names = _stage_files(ready)
        old.mkdir()
        write_json(old / NEW_FILES_LIST, {"files": [str(name) for name in names]})
        sync_folder(folder.path)
        changed_folders = {folder.path, old}
        for path in folder.run_files():
            changed_folders |= _move(path, old / path.relative_to(folder.path))
        for name in names:
            changed_folders |= _move(ready / name, folder.path / name)
        for changed in changed_folders:
            sync_folder(changed)
        os.replace(ready, placed)
    except BaseException as failure:
        try:
            _restore_old(folder)
        except OSError as error:
            problem = f"cannot write to the run folder {folder.path}: {error.strerror or error}"
            raise RunError(problem, f"fix the cause, and {_recovery_remedy(folder.path)}") from failure
        raise
    # The new run is in place; files of the old run that cannot be deleted now are deleted later.
    with contextlib.suppress(OSError):
        _delete_old(folder)


def recover(folder: RunFolder) -> None:
    """Undo an interrupted overwrite, or delete the old run after a completed overwrite; the caller holds the lock."""
    if (folder.path / PLACED).is_dir() and next(valid_checkpoints(folder.checkpoints), None) is not None:
        _delete_old(folder)
    _restore_old(folder)
    shutil.rmtree(folder.path / PLACED, ignore_errors=True)
    shutil.rmtree(folder.path / NEW, ignore_errors=True)
    for subfolder in (folder.path, folder.checkpoints):
        remove_temporaries(subfolder)


def recover_locked(path: Path) -> None:
    """If the folder contains a staging folder, lock it and call ``recover``, so that a command can read the config."""
    if any((path / stage).is_dir() for stage in STAGES):
        with disk_errors_as_run_error(path), FolderLock(path):
            recover(RunFolder(path))


def is_interrupted(path: Path) -> bool:
    """Return whether an overwrite stopped halfway, so that neither the old nor the new run is complete."""
    return (path / OLD / NEW_FILES_LIST).is_file() and not (path / PLACED).is_dir()


def refuse_interrupted(path: Path) -> None:
    """Raise InputError if an overwrite of the folder stopped halfway; used by commands that only read the folder.

    If another process is completing the overwrite, the function waits for it, at most SWAP_SECONDS.
    """
    end = time.monotonic() + SWAP_SECONDS
    while is_interrupted(path):
        if time.monotonic() > end or not is_locked(path):
            raise InputError(f"an overwrite of {path} was interrupted", _recovery_remedy(path))
        time.sleep(0.01)


def _recovery_remedy(path: Path) -> str:
    return f"`{shlex.join(['proxlearn', 'resume', str(path)])}` restores the old run"


def _restore_old(folder: RunFolder) -> None:
    """Move the old run's files back and delete the new run; this can be repeated after an interruption."""
    ready, old = folder.path / READY, folder.path / OLD
    # A file of the new run that is not in "ready" is in the run folder. Without "ready", the origin of the files in the
    # run folder is unknown, so these files are not moved.
    for name in _read_new_files(old) if ready.is_dir() else ():
        if not (ready / name).exists() and (folder.path / name).is_file():
            _move(folder.path / name, ready / name)
    for name in _stage_files(old):
        if name != PurePosixPath(NEW_FILES_LIST):
            if (folder.path / name).exists():
                remedy = f"move {old} elsewhere, or move its files back into place"
                raise InputError(f"an overwrite of {folder.path} was interrupted, and {name} exists twice", remedy)
            _move(old / name, folder.path / name)
    if old.is_dir():
        sync_folder(folder.checkpoints if folder.checkpoints.is_dir() else folder.path)
        sync_folder(folder.path)
        (old / NEW_FILES_LIST).unlink(missing_ok=True)
        shutil.rmtree(old)
        sync_folder(folder.path)
    if ready.is_dir():
        shutil.rmtree(ready)


def _delete_old(folder: RunFolder) -> None:
    """Delete the files of the old run, then the staging folder that marks the exchange as complete."""
    sync_folder(folder.path)
    if (folder.path / OLD).is_dir():
        shutil.rmtree(folder.path / OLD)
        sync_folder(folder.path)
    shutil.rmtree(folder.path / PLACED)


def _move(path: Path, target: Path) -> set[Path]:
    """Move a file and return the two folders that have changed."""
    target.parent.mkdir(exist_ok=True)
    os.replace(path, target)
    return {path.parent, target.parent}


def _stage_files(folder: Path) -> list[PurePosixPath]:
    """Return the names of the files in a staging folder; config and status, which identify a run, are last."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    paths = (path for path in folder.rglob("*") if not path.is_dir() and not is_temporary(path))
    names = (PurePosixPath(path.relative_to(folder)) for path in paths)
    return sorted(names, key=lambda name: (name.name in ("config.yaml", "status.json"), name))


def _read_new_files(old: Path) -> list[PurePosixPath]:
    """Return the relative paths of the new run's files, as listed in ``new-files.json`` in the folder ``old``.

    Paths that lead outside the run folder are left out. If the list cannot be read, the result is empty.
    """
    try:
        files = read_json(old / NEW_FILES_LIST)["files"]
    except (UnreadableFile, KeyError):
        return []
    names = [PurePosixPath(name) for name in files if isinstance(name, str)] if isinstance(files, list) else []
    return [name for name in names if not name.is_absolute() and ".." not in name.parts and name.parts]
