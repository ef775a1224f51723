"""Notices to the user, which are printed on stderr, because stdout is reserved for results."""

from __future__ import annotations

import sys

from proxlearn.printable_text import printable
from proxlearn.terminal.streams import try_write


class Notices:
    """A flag that is set if this process prints notices; of several ranks, only one does."""

    silent = False


def notice(text: str) -> None:
    """Print ``text`` as one line on stderr, unless this process is silent."""
    if Notices.silent:
        return
    try_write(f"proxlearn: {printable(text)}\n", sys.stderr)
