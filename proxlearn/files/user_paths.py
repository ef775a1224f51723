"""Paths as users type them: ``~`` is expanded, and a web address is not a path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from proxlearn.errors import InputError

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def expand_home(text: str) -> str:
    """``~`` and ``~user`` at the beginning replaced by the home folder; an unknown user's stays as it is."""
    return os.path.expanduser(text)


def check_path(name: str, text: str) -> str:
    """Refuse what cannot name a file or a folder: a path would lose one of an address's slashes without a word."""
    if ADDRESS.match(text):
        remedy = "choose a folder here" if name.startswith("hydra.") else "download it first, and name the copy"
        raise InputError(f"{name} must be a path on this machine, got the address {text:.200}", remedy)
    if "\0" in text:
        raise InputError(f"{name} holds a zero byte: {text!r:.100}", "correct the path")
    return text


def absolute_folder(path: str | Path) -> Path:
    """An absolute path to the folder that the operating system means by ``path``.

    ``..`` after a symbolic link is the parent of the link's target, not of the link: ``os.path.abspath`` would give
    another folder than the one that a reader of the same path opens.
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
    """The path that ``text``, the value of ``name``, stands for."""
    return Path(expand_home(check_path(name, text)))
