"""Recognition of the folders of runs, sweeps and comparisons, so that other files are never replaced.

A run folder is recognised by its config.yaml or status.json, a sweep folder by its sweep.yaml, and a comparison by its
plans, splits or cells, including the formats of version 0.1.0. One intact file is enough, so that a damaged run can be
started again. A config.yaml alone may be a user's copy; in that case, every other file that a run would replace must be
recognised as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from proxlearn.errors import InputError
from proxlearn.files.atomic import is_temporary
from proxlearn.files.safe_read import UnreadableFile, open_regular
from proxlearn.run.run_folder import RUN_FILES

CONFIG_KEYS = (b"dataset", b"recipe", b"N", b"epsilon", b"rho0")
"""Top-level keys of config.yaml; a file that has all of them counts as a config of proxlearn."""
STAGES = (".proxlearn-new", ".proxlearn-ready", ".proxlearn-old", ".proxlearn-placed")
"""Names of the staging folders of an overwrite (run/overwrite.py)."""
LOCK_START = b'{"pid": '
"""First bytes of a lock file (run/lock.py)."""
PLAN_START = re.compile(rb'\{\s*"command":\s*"proxlearn compare')
SPLIT_START = re.compile(rb'\{\s*"format":\s*"proxlearn-split-')
CELL_START = re.compile(rb'\{\s*"format":\s*"proxlearn-cell-')
RESULTS_START = re.compile(rb'\{"format": "proxlearn-results-\d+"\}\n')
"""Patterns of the start of a comparison's files; SPLIT_START and CELL_START match the files of version 0.1.0."""
RUN_FILE_STARTS = {
    "model.json": re.compile(rb'\{\s*"format":\s*"proxlearn-model-'),
    "selection.json": re.compile(rb'\{\s*"format":\s*"proxlearn-selection-'),
    "metrics.csv": re.compile(rb"step,"),
    "points.csv": re.compile(rb"part,x0"),
    "accuracy.csv": re.compile(rb"part,estimate,"),
    "confusion.csv": re.compile(rb"part,estimate,actual,"),
}
"""Patterns that match the start of a run's files, by file name. In a folder without a status, checkpoints or a staging
folder, files with other names are not recognised.
"""
MAX_BYTES = 2**20
"""Maximum number of bytes that are read from a file of unknown content."""


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` contains a run of proxlearn, complete or not."""
    # During an overwrite, the files of the run are in a staging folder.
    return any(_has_marker(path) for path in (folder, *(folder / stage for stage in STAGES[1:3])))


def _has_marker(folder: Path) -> bool:
    config = _read_start(folder / "config.yaml")
    return all(re.search(rb"^%s:" % key, config, re.MULTILINE) for key in CONFIG_KEYS) or _has_status(folder)


def _has_status(folder: Path) -> bool:
    versions = _read_json(folder / "status.json").get("versions")
    return isinstance(versions, dict) and "proxlearn" in versions


def _unrecognised_files(folder: Path) -> list[str]:
    """Return the files that have the names of run files but were not written by a run.

    The list is empty if a checkpoint, a status or a staging folder shows that the folder contains a run, because
    damaged files then belong to that run.
    """
    has_stage = any((folder / stage).is_dir() for stage in STAGES)
    if has_stage or _has_status(folder) or any(folder.glob("checkpoints/cloud-*")):
        return []
    present = sorted(name for name in RUN_FILES - {"config.yaml", "train.log"} if (folder / name).is_file())
    return [
        name for name in present if name not in RUN_FILE_STARTS or not begins_with(folder / name, RUN_FILE_STARTS[name])
    ]


def require_run_or_empty(folder: Path) -> None:
    """Raise InputError if a folder is neither a run folder nor empty.

    Leftovers of a run that was killed at its start are ignored. The caller rejects folders that contain links.
    """
    refuse_stages(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise InputError(f"{folder} is not a folder", "choose another hydra.run.dir") from error
    foreign = [entry.name for entry in entries if not _is_transient(entry)]
    if foreign and not is_run(folder):
        raise foreign_files_error(folder, foreign, "run")
    unrecognised = _unrecognised_files(folder)
    if unrecognised:
        files = ", ".join(unrecognised[:3])
        problem = f"{folder} contains a config.yaml of proxlearn, but also files that proxlearn did not write ({files})"
        raise InputError(problem, "choose a new or empty folder: hydra.run.dir=...")


def refuse_stages(folder: Path) -> None:
    """Raise InputError if a path contains the name of a staging folder, because staging folders are deleted."""
    for name in STAGES:
        if name in folder.parts:
            raise InputError(
                f"the path {folder} contains {name}, which is a name reserved for proxlearn", "choose another folder"
            )


def require_sweep_or_empty(folder: Path) -> None:
    """Raise InputError if a folder is neither a sweep folder nor empty."""
    refuse_stages(folder)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [path.name for path in paths if not is_temporary(path)]
    has_only_empty_jobs = names == ["jobs"] and (folder / "jobs").is_dir() and not any((folder / "jobs").iterdir())
    plan = _read_start(folder / "sweep.yaml")
    is_sweep = plan.startswith(b"command:") and re.search(rb"^jobs:", plan, re.MULTILINE)
    if names and not has_only_empty_jobs and not is_sweep:
        raise foreign_files_error(folder, names, "sweep")


def require_comparison_or_empty(folder: Path) -> None:
    """Raise InputError if a folder is neither an output folder of `proxlearn compare` nor empty."""
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else []
    foreign = [entry.name for entry in entries if not _is_transient(entry)]
    if foreign and not is_comparison(folder):
        raise foreign_files_error(folder, foreign, "comparison", "--output FOLDER")


def is_comparison(folder: Path) -> bool:
    """Return whether ``folder`` is an output folder of `proxlearn compare`, complete or not."""
    markers = {
        "*/plan.json": PLAN_START,
        "splits.jsonl": RESULTS_START,
        "cells.jsonl": RESULTS_START,
        "splits/*.json": SPLIT_START,
        "cells/*/*.json": CELL_START,
    }
    return any(begins_with(path, start) for names, start in markers.items() for path in folder.glob(names))


def begins_with(path: Path, start: re.Pattern[bytes]) -> bool:
    """Return whether ``path`` is a regular file, not a link, whose content begins with a match of ``start``."""
    return is_regular(path) and start.match(_read_start(path)) is not None


def is_lock(path: Path) -> bool:
    """Return whether ``path`` is a lock file that proxlearn wrote.

    The file may be complete, cut off by a full disk, or missing because the lock was just released.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(status.st_mode) and _read_start(path)[: len(LOCK_START)] == LOCK_START[: status.st_size]


def is_regular(path: Path) -> bool:
    """Return whether ``path`` is a regular file and not a link to one."""
    return path.is_file() and not path.is_symlink()


def foreign_files_error(folder: Path, names: list[str], kind: str, option: str | None = None) -> InputError:
    """Return the error for a folder with files that proxlearn did not write.

    ``kind`` is run, sweep or comparison. ``option`` is the option that chooses another folder, by default
    hydra.<kind>.dir.
    """
    listed = ", ".join(ascii(name)[1:-1][:40] for name in names[:3]) + (", ..." if len(names) > 3 else "")
    problem = f"{folder} contains other files ({listed}) but no {kind} of proxlearn"
    return InputError(problem, f"choose a new or empty folder: {option or f'hydra.{kind}.dir=...'}")


def refuse_table_inside(table: str | None, folder: Path) -> None:
    """Raise InputError if the run would replace the training table with one of the files that it writes."""
    if table is None:
        return
    path = Path(os.path.realpath(os.path.expanduser(table)))
    if path.parent == Path(os.path.realpath(folder)) and path.name in RUN_FILES:
        problem = f"dataset.path={table} is in the run folder and has the name of a file that the run writes"
        raise InputError(problem, "rename the table, or choose another folder")


def _is_transient(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder without a run is a leftover of a killed process, such as a lock."""
    path = Path(entry.path)
    if entry.is_dir(follow_symlinks=False):
        return entry.name in STAGES or (entry.name in ("checkpoints", "splits") and _holds_temporaries_only(path))
    if not entry.is_file(follow_symlinks=False):
        return False
    if entry.name == ".lock-owner":
        return True
    if entry.name == ".lock":
        return is_lock(path)
    if entry.name == "selection.json":
        # A file of this name is a leftover of a run only if it has the format of a selection.
        return str(_read_json(path).get("format", "")).startswith("proxlearn-selection-")
    return is_temporary(path)


def _holds_temporaries_only(folder: Path) -> bool:
    return all(is_temporary(path) for path in folder.iterdir())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_start(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_start(path: Path) -> bytes:
    """Return the first MAX_BYTES bytes of a regular file, or b"" for any other path or an unreadable file."""
    with contextlib.suppress(OSError, UnreadableFile), os.fdopen(open_regular(path), "rb") as file:
        return file.read(MAX_BYTES)
    return b""


def check_writable(path: Path, remedy: str = "choose another hydra.run.dir") -> None:
    """Raise InputError if an output folder cannot be created or written to."""
    existing = path
    try:
        while not existing.exists() and existing != existing.parent:
            if existing.is_symlink():
                raise InputError(f"cannot create the folder {path}, because {existing} is a broken link", remedy)
            existing = existing.parent
        usable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        # The name is too long or contains a null byte.
        raise InputError(f"{str(path)!r:.100} is not a valid folder name", remedy) from error
    if not usable:
        consequence = "" if existing == path else f", so the folder {path} cannot be created"
        raise InputError(f"cannot write to {existing}{consequence}", remedy)


def nearest_existing_folder(path: Path) -> Path:
    """Return ``path`` if it is an existing folder, otherwise the nearest existing folder above it."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), Path("/"))


def remove_if_empty(path: Path, existing: Path) -> None:
    """Remove a folder if it is empty, and then its empty parents up to, but not including, ``existing``."""
    for folder in (path, *path.parents):
        if folder == existing or not folder.is_relative_to(existing):
            return
        try:
            folder.rmdir()
        except OSError:
            return
