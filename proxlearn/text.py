"""Text from files and names of files, made safe for a terminal.

A run's name, a column, a class or a host may hold control characters, which a terminal would obey. Everything that
is printed for people passes through here; tables for programs (CSV, JSON) keep their bytes.
"""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """One line: control and format characters as escapes (``\\x1b``), line ends and tabs as blanks."""
    return "".join(" " if sign in "\n\r\t" else _escape(sign) for sign in text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, which keeps its line ends."""
    return "".join(sign if sign == "\n" else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    # Python does not call the wide blanks of other scripts printable; they do no harm.
    return sign if sign.isprintable() or unicodedata.category(sign) == "Zs" else ascii(sign)[1:-1]
