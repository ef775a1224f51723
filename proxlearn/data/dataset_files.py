"""Data files with a known sha256: where they are, how they are fetched, and how they are read.

A file is looked for at ``dataset.path``, in the folder that PROXLEARN_DATA names, and in the user's cache. If it is in
none of them, it is fetched into the cache. Its bytes are read once and compared with the sha256, so the bytes that are
parsed are the bytes that were checked.
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
    """A source could not be reached, or its content is not the expected one; the message says why.

    ``remedy`` says how to make the same command work, if there is a way.
    """

    def __init__(self, why: str, remedy: str | None = None) -> None:
        super().__init__(why)
        self.remedy = remedy


class Source(Protocol):
    """A place that a file can be fetched from."""

    @property
    def address(self) -> str:
        """Return a description of the download that a user can make by hand."""

    def fetch(self, name: str) -> dict[str, bytes]:
        """Return the bytes of the file and of the files that come with it, by name, or raise DownloadFailed."""


@dataclass(frozen=True)
class DataFile:
    """A file whose sha256 is known."""

    name: str
    sha256: str
    source: Source


def digest(content: bytes) -> str:
    """Return the sha256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def cache_folder() -> Path:
    """Return the folder in the user's cache where fetched files are stored."""
    from platformdirs import user_cache_path

    return user_cache_path("proxlearn", appauthor=False) / "data"


def find(file: DataFile, path: str | None = None) -> Path | None:
    """Return the path of the file without reading it; None if it would have to be fetched."""
    if path is not None:
        given = user_path("dataset.path", path)
        given = given / file.name if given.is_dir() else given
        if not given.is_file():
            raise InputError(f"dataset.path={path}: no file {given}", f"point it to {file.name}, or leave it out")
        return given
    folders = [cache_folder()]
    if os.environ.get(VARIABLE):
        named = user_path(VARIABLE, os.environ[VARIABLE])
        if not named.is_dir():
            raise InputError(f"{VARIABLE}={named} is not a folder", f"correct or unset {VARIABLE}")
        folders.insert(0, named)
    return next((folder / file.name for folder in folders if (folder / file.name).is_file()), None)


def read(file: DataFile, path: str | None = None) -> bytes:
    """Return the verified content of the file; fetch it first if it is absent."""
    place = find(file, path)
    return fetch(file) if place is None else verified(file, place)


def verified(file: DataFile, path: Path) -> bytes:
    """Return the content of the file at ``path``; refuse a damaged one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "correct its permissions") from error
    if digest(content) != file.sha256:
        raise InputError(
            f"{path} is damaged or another file: its sha256 is {digest(content)} instead of {file.sha256}",
            f"delete it, or put the right {file.name} there ({file.source.address})",
        )
    return content


def fetch(file: DataFile) -> bytes:
    """Fetch the file from its source into the cache, and return its content."""
    folder = cache_folder()
    notice(f"fetching {file.name} ({file.source.address}) into {folder}")
    try:
        received = file.source.fetch(file.name)
        content = received[file.name]
        if digest(content) != file.sha256:
            raise DownloadFailed(f"the received file has sha256 {digest(content)}")
    except DownloadFailed as failure:
        by_hand = (
            f"put it into a folder and set {VARIABLE} to that folder (`train` also takes dataset.path=.../{file.name})"
        )
        raise InputError(
            f"{file.name} is not on this machine and could not be fetched ({failure}); the file with sha256 "
            f"{file.sha256} from {file.source.address} is needed",
            f"{failure.remedy}, or {by_hand}" if failure.remedy else by_hand,
        ) from failure
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, received_content in received.items():
            _store(folder / name, received_content)
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder}: {error.strerror}", "free some space or correct its permissions"
        ) from error
    return content


def _store(path: Path, content: bytes) -> None:
    """Write under a temporary name and rename, so that no reader sees a partial file. No sync: sha256 shows damage."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
