"""Notices to the user on stderr, when something takes long or was guessed; stdout carries results only."""

from __future__ import annotations

import sys

from proxlearn.terminal.streams import try_write
from proxlearn.text import printable


def notice(text: str) -> None:
    """Print one line on stderr."""
    try_write(f"proxlearn: {printable(text)}\n", sys.stderr)
