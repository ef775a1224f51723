"""Checks of an output folder before a run or a sweep starts, and its removal if nothing was stored in it."""

from __future__ import annotations

import os
from pathlib import Path

from proxlearn.errors import InputError


def check_writable(path: Path, remedy: str = "choose another hydra.run.dir") -> None:
    """Raise InputError if an output folder cannot be created or written to."""
    existing = path
    try:
        while not existing.exists() and existing != existing.parent:
            if existing.is_symlink():
                raise InputError(f"{existing}, which is needed for the run folder {path}, is a broken link", remedy)
            existing = existing.parent
        usable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        # The name is too long, or contains a zero byte.
        raise InputError(f"{str(path)!r:.100} is not a valid folder name", remedy) from error
    if not usable:
        raise InputError(f"cannot write to {existing}, which is needed for the run folder {path}", remedy)


def nearest_existing_folder(path: Path) -> Path:
    """Return ``path`` if it is an existing folder, otherwise its nearest existing parent."""
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
