"""Notices to the user, which are printed on stderr, because stdout carries results only."""

from __future__ import annotations

import sys

from proxlearn.printable_text import printable
from proxlearn.terminal.streams import try_write


def notice(text: str) -> None:
    """Print ``text`` as one line on stderr."""
    try_write(f"proxlearn: {printable(text)}\n", sys.stderr)
