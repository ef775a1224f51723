"""Words to the user while something takes long or was guessed: on stderr, so that results stay alone on stdout."""

from __future__ import annotations

import sys

from proxlearn.text import printable


def notice(text: str) -> None:
    print(f"proxlearn: {printable(text)}", file=sys.stderr, flush=True)
