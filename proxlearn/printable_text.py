"""Text from files and file names, made safe for a terminal.

The name of a run, a column, a class or a host may contain control characters, which a terminal would execute. Text that
is printed for users passes through these functions; tables for programs (CSV, JSON) are not changed.
"""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Return the text as one line, with control characters escaped (``\\x1b``) and line breaks and tabs as spaces."""
    return "".join(" " if character in "\n\r\t" else _escape(character) for character in text)


def printable_lines(text: str) -> str:
    """Return the text with control and format characters escaped; line breaks are kept."""
    return "".join(character if character == "\n" else _escape(character) for character in text)


def _escape(character: str) -> str:
    # isprintable() is false for the wide spaces of other scripts, which are harmless.
    is_safe = character.isprintable() or unicodedata.category(character) == "Zs"
    return character if is_safe else ascii(character)[1:-1]
