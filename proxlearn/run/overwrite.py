"""Starting again in a run folder without losing the old run: the new one is made first, inside the folder, then placed.

    .proxlearn-new      the new run is being made; the old one is valid.
    .proxlearn-ready    the new run is durable up to its checkpoint of step 0, and changes places with the old one:
    .proxlearn-old      the old run's files go in here, then the new run's come out of .proxlearn-ready.
    .proxlearn-placed   .proxlearn-ready, empty: the new run is in its place, and .proxlearn-old can be deleted.

Nothing is deleted before the one rename from "ready" to "placed"; whatever fails or is killed earlier is taken back,
and the old run stays. That needs to know which files came out of "ready": they are listed in .proxlearn-old first. The
stages lie inside the run folder: its lock covers them, files that are not the run's stay where they are, and a folder
that cannot be renamed (a mount point, a shell's working directory) can be overwritten too. Only a process that holds
the lock finishes an overwrite or takes it back; a command that reads changes nothing.
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
from proxlearn.run.lock import FolderLock, FolderLost, is_locked
from proxlearn.run.ownership import STAGES
from proxlearn.run.run_folder import RunFolder

NEW, READY, OLD, PLACED = STAGES
NEW_FILES_LIST = "new-files.json"
"""In .proxlearn-old: the names of the new run's files."""
SWAP_SECONDS = 2.0
"""How long a reader waits for another process that is just placing a new run: that takes milliseconds."""


@contextlib.contextmanager
def staged_run(folder: RunFolder) -> Iterator[RunFolder]:
    """A run folder to make the new run in; deleted at the end, unless ``place`` has moved it."""
    made = folder.path / NEW
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield RunFolder(made, folder.require_held)
    finally:
        # What is in a folder that was taken away is another process's.
        with contextlib.suppress(FolderLost):
            folder.require_held()
            shutil.rmtree(made, ignore_errors=True)


def swap_in(folder: RunFolder) -> None:
    """Put the new run in the old one's place, or leave the old one there and raise what went wrong.

    The caller holds the lock; every file of the new run is on disk.
    """
    new, ready, old, placed = (folder.path / stage for stage in STAGES)
    try:
        os.replace(new, ready)
        sync_folder(folder.path)
        names = _stage_files(ready)
        old.mkdir()
        write_json(old / NEW_FILES_LIST, {"files": [str(name) for name in names]})
        sync_folder(folder.path)
        touched = {folder.path, old}
        for path in folder.run_files():
            touched |= _move(path, old / path.relative_to(folder.path))
        for name in names:
            touched |= _move(ready / name, folder.path / name)
        for changed in touched:
            sync_folder(changed)
        os.replace(ready, placed)
    except BaseException as failure:
        try:
            _restore_old(folder)
        except OSError as error:
            problem = f"cannot write to the run folder {folder.path}: {error.strerror or error}"
            raise RunError(problem, f"put that right, and {_recovery_remedy(folder.path)}") from failure
        raise
    # The new run is in its place: what of the old one cannot be deleted now is deleted later.
    with contextlib.suppress(OSError):
        _delete_old(folder)


def recover(folder: RunFolder) -> None:
    """Take back an overwrite that was interrupted, or tidy up after one that was done. The caller has the lock."""
    if (folder.path / PLACED).is_dir() and next(valid_checkpoints(folder.checkpoints), None) is not None:
        _delete_old(folder)
    _restore_old(folder)
    shutil.rmtree(folder.path / PLACED, ignore_errors=True)
    shutil.rmtree(folder.path / NEW, ignore_errors=True)
    for place in (folder.path, folder.checkpoints):
        remove_temporaries(place)


def recover_locked(path: Path) -> None:
    """The same for a command that is going to write, and must read the run's config first."""
    if any((path / stage).is_dir() for stage in STAGES):
        with disk_errors_as_run_error(path), FolderLock(path):
            recover(RunFolder(path))


def is_interrupted(path: Path) -> bool:
    """Whether a folder holds neither the old run nor the new one in its place."""
    return (path / OLD / NEW_FILES_LIST).is_file() and not (path / PLACED).is_dir()


def refuse_interrupted(path: Path) -> None:
    """For a command that only reads: refuse a folder in which an overwrite was interrupted halfway."""
    end = time.monotonic() + SWAP_SECONDS
    while is_interrupted(path):
        if time.monotonic() > end or not is_locked(path):
            raise InputError(f"an overwrite of {path} was interrupted", _recovery_remedy(path))
        time.sleep(0.01)


def _recovery_remedy(path: Path) -> str:
    return f"`{shlex.join(['proxlearn', 'resume', str(path)])}` brings the old run back"


def _restore_old(folder: RunFolder) -> None:
    """The old run's files back in their places; the new run is deleted. Can be interrupted and done again."""
    ready, old = folder.path / READY, folder.path / OLD
    # One that is not in "ready" any more is in the folder. Without "ready" nobody can tell, and no file is replaced.
    for name in _read_new_files(old) if ready.is_dir() else ():
        if not (ready / name).exists() and (folder.path / name).is_file():
            _move(folder.path / name, ready / name)
    for name in _stage_files(old):
        if name != PurePosixPath(NEW_FILES_LIST):
            if (folder.path / name).exists():
                remedy = f"move {old} away, or its files into their places"
                raise InputError(f"an overwrite of {folder.path} was interrupted, and {name} is there twice", remedy)
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
    """Delete the old run, and then what says that the new one is in its place."""
    sync_folder(folder.path)
    if (folder.path / OLD).is_dir():
        shutil.rmtree(folder.path / OLD)
        sync_folder(folder.path)
    shutil.rmtree(folder.path / PLACED)


def _move(path: Path, target: Path) -> set[Path]:
    """Rename a file; returns the folders that this changed."""
    target.parent.mkdir(exist_ok=True)
    os.replace(path, target)
    return {path.parent, target.parent}


def _stage_files(folder: Path) -> list[PurePosixPath]:
    """The files of a stage, the config and the status last, which say that there is a run."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    paths = (path for path in folder.rglob("*") if not path.is_dir() and not is_temporary(path))
    names = (PurePosixPath(path.relative_to(folder)) for path in paths)
    return sorted(names, key=lambda name: (name.name in ("config.yaml", "status.json"), name))


def _read_new_files(old: Path) -> list[PurePosixPath]:
    """The names of the new run's files, as far as they are names inside the folder."""
    try:
        listed = read_json(old / NEW_FILES_LIST)["files"]
    except (UnreadableFile, KeyError):
        return []
    names = [PurePosixPath(name) for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return [name for name in names if not name.is_absolute() and ".." not in name.parts and name.parts]
