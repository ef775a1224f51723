"""Words to the user while something takes long or was guessed: on stderr, so that results stay alone on stdout."""

from __future__ import annotations

import sys

from proxlearn.terminal.streams import write_words
from proxlearn.text import printable


def notice(text: str) -> None:
    write_words(f"proxlearn: {printable(text)}\n", sys.stderr)
