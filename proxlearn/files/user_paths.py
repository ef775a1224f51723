"""Paths that users type: ``~`` is expanded, and web addresses and unreadable files raise an InputError."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from proxlearn.errors import InputError

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def expand_home(text: str) -> str:
    """Replace a leading ``~`` or ``~user`` with the home folder; the name of an unknown user is kept."""
    return os.path.expanduser(text)


def check_path(name: str, text: str) -> str:
    """Return ``text``; raise InputError if it is a web address or contains a zero byte.

    ``Path`` would silently remove one of the slashes of a web address.
    """
    if ADDRESS.match(text):
        remedy = "choose a local folder" if name.startswith("hydra.") else "download it first, and give the local path"
        raise InputError(f"{name} must be a path on this machine, got the URL {text:.200}", remedy)
    if "\0" in text:
        raise InputError(f"{name} contains a null byte: {text!r:.100}", "correct the path")
    return text


def absolute_folder(path: str | Path) -> Path:
    """Return the absolute path of the folder that the operating system opens for ``path``.

    ``..`` after a symbolic link is the parent of the link's target, not of the link; ``os.path.abspath`` would return
    another folder.
    """
    parts = (Path.cwd() / path).parts
    if ".." not in parts:
        return Path(*parts)
    end = len(parts) - parts[::-1].index("..")
    return Path(os.path.realpath(Path(*parts[:end])), *parts[end:])


def display_path(path: Path) -> str:
    """Return a path as the user would type it: relative if it is below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def user_path(name: str, text: str) -> Path:
    """Return the path that the user gave as ``text`` for the setting or option ``name``."""
    return Path(expand_home(check_path(name, text)))


@contextlib.contextmanager
def unreadable_as_input_error(name: str, path: Path, kinds: str) -> Iterator[None]:
    """Convert a failure to read ``path``, the value of ``name``, into an InputError; ``kinds`` are valid endings."""
    try:
        yield
    except FileNotFoundError as error:
        remedy = f"correct the path (relative paths start from the current folder, {Path.cwd()})"
        raise InputError(f"{name}: the file {path} does not exist", remedy) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", f"give a readable {kinds} file") from error
