"""Words to the user while something takes long or was guessed: on stderr, so that results stay alone on stdout."""

from __future__ import annotations

import sys

from proxlearn.terminal.streams import try_write
from proxlearn.text import printable


def notice(text: str) -> None:
    try_write(f"proxlearn: {printable(text)}\n", sys.stderr)
