"""Text from files and file names, made safe for a terminal.

A run's name, a column, a class or a host may contain control characters, which a terminal would execute. Everything
that is printed for people passes through here; tables for programs (CSV, JSON) keep their bytes.
"""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Return one line: control and format characters become escapes (``\\x1b``), line ends and tabs become spaces."""
    return "".join(" " if character in "\n\r\t" else _escape(character) for character in text)


def printable_lines(text: str) -> str:
    """Return several lines: control and format characters become escapes; line ends stay."""
    return "".join(character if character == "\n" else _escape(character) for character in text)


def _escape(character: str) -> str:
    # isprintable() is false for the wide spaces of other scripts, which are harmless.
    is_safe = character.isprintable() or unicodedata.category(character) == "Zs"
    return character if is_safe else ascii(character)[1:-1]
