"""Functions that format text for messages, and escape text for a terminal, for Hydra's grammar and for the shell.

The name of a run, a column, a class or a host may contain control characters, which a terminal would interpret.
Messages and text for a terminal are passed through these functions; the content of CSV and JSON files is not.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable


def printable(text: str) -> str:
    """Return the text as one line: line breaks and tabs become spaces; control characters are escaped (``\\x1b``)."""
    return "".join(" " if character in "\n\r\t" else _escape(character) for character in text)


def printable_lines(text: str) -> str:
    """Return the text with control and format characters escaped, except for line breaks."""
    return "".join(character if character == "\n" else _escape(character) for character in text)


def counted(number: int, noun: str) -> str:
    """Return the number and the noun, to which an s is added unless the number is 1: "1 row", "2 rows"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _escape(character: str) -> str:
    # isprintable() is false for the wide spaces of other scripts, which are harmless.
    is_safe = character.isprintable() or unicodedata.category(character) == "Zs"
    return character if is_safe else ascii(character)[1:-1]


PLAIN = re.compile(r"[A-Za-z_/][\w/.-]*", re.ASCII)
"""Pattern of the strings that need no quotes in Hydra's grammar."""
KEYWORDS = ("null", "true", "false", "nan", "inf")


def quote(text: str) -> str:
    """Return a string in Hydra's double quotes; Hydra resolves the interpolations (``${key}``) that it contains."""
    # Hydra reads a backslash as an escape only before a quote, including the closing one.
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", escaped) + '"'


def quote_literal(text: str) -> str:
    """Return a string in Hydra's double quotes, in which ``${`` is not an interpolation."""
    return quote(re.sub(r"(\\*)\$\{", r"\1\1\\${", text))


def override_word(key: str, text: str) -> str:
    """Return ``key=text`` as one word that can be pasted into a shell."""
    return shlex.quote(f"{key}={hydra_value(text)}")


def override_list(key: str, texts: Iterable[str]) -> str:
    """Return ``key=[text,...]`` as one word that can be pasted into a shell."""
    return shlex.quote(f"{key}=[{','.join(map(hydra_value, texts))}]")


def hydra_value(text: str) -> str:
    """Return a string as a value in Hydra's grammar, in quotes if Hydra would otherwise not read it as this string."""
    needs_no_quotes = PLAIN.fullmatch(text) and text.lower() not in KEYWORDS
    return text if needs_no_quotes else quote_literal(text)
