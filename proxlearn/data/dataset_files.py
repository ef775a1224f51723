"""Data files: found, fetched, and read whole or not at all.

A file is looked for at ``dataset.path``, in the folder that PROXLEARN_DATA names, and in the user's cache; then it is
fetched into the cache. Its bytes are read once, compared with the known sha256 and handed on: what was checked is
what is parsed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proxlearn.errors import InputError
from proxlearn.files.user_paths import user_path
from proxlearn.terminal.notice import notice

VARIABLE = "PROXLEARN_DATA"


class DownloadFailed(Exception):
    """A source could not be reached, or gave something else; the message says why."""


class Source(Protocol):
    """Where a file can be had."""

    @property
    def address(self) -> str:
        """For people: what to download by hand."""

    def fetch(self, name: str) -> dict[str, bytes]:
        """The file's bytes by name, with those of its companions that come along; raises Unavailable."""


@dataclass(frozen=True)
class DataFile:
    """A file whose content is known beforehand."""

    name: str
    sha256: str
    source: Source


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def cache_folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("proxlearn", appauthor=False) / "data"


def find(file: DataFile, path: str | None = None) -> Path | None:
    """Where the file is, unread; None where it would have to be fetched."""
    if path is not None:
        given = user_path("dataset.path", path)
        given = given / file.name if given.is_dir() else given
        if not given.is_file():
            raise InputError(f"dataset.path={path}: no file {given}", f"it should hold {file.name}, or leave it out")
        return given
    folders = [cache_folder()]
    if os.environ.get(VARIABLE):
        named = user_path(VARIABLE, os.environ[VARIABLE])
        if not named.is_dir():
            raise InputError(f"{VARIABLE}={named} is not a folder", f"correct or unset {VARIABLE}")
        folders.insert(0, named)
    return next((folder / file.name for folder in folders if (folder / file.name).is_file()), None)


def read(file: DataFile, path: str | None = None) -> bytes:
    """The file's content, verified; fetched first where it is nowhere."""
    found = find(file, path)
    return fetch(file) if found is None else verified(file, found)


def verified(file: DataFile, found: Path) -> bytes:
    """The content of a file that is there; a damaged one is refused."""
    try:
        content = found.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {found}: {error.strerror}", "correct its permissions") from error
    if digest(content) != file.sha256:
        raise InputError(
            f"{found} is damaged or another file: its sha256 is {digest(content)} instead of {file.sha256}",
            f"delete it, or put the right {file.name} there ({file.source.address})",
        )
    return content


def fetch(file: DataFile) -> bytes:
    """Get the file from its source into the cache, and return its content."""
    folder = cache_folder()
    notice(f"fetching {file.name} ({file.source.address}) into {folder}")
    try:
        received = file.source.fetch(file.name)
        content = received[file.name]
        if digest(content) != file.sha256:
            raise DownloadFailed(f"what came has sha256 {digest(content)}")
    except DownloadFailed as why:
        raise InputError(
            f"{file.name} is not on this machine and could not be fetched ({why}): wanted is the file with sha256 "
            f"{file.sha256} from {file.source.address}",
            f"put it into a folder and set {VARIABLE} to that folder (`train` also takes dataset.path=.../{file.name})",
        ) from why
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, each in received.items():
            _place(folder / name, each)
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder}: {error.strerror}", "make room or correct its permissions"
        ) from error
    return content


def _place(path: Path, content: bytes) -> None:
    """Under a temporary name, then renamed: no reader sees a part. Not synced: a damaged file would be noticed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
