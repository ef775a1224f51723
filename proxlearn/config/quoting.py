"""Overrides as words of a command line: the quoting that Hydra, OmegaConf and the shell need for a given text."""

from __future__ import annotations

import re
import shlex

PLAIN = re.compile(r"[A-Za-z_/][\w/.-]*", re.ASCII)
"""Texts that need no quotes: Hydra reads them as they are."""
KEYWORDS = ("null", "true", "false", "nan", "inf")


def quote(text: str) -> str:
    """A text in Hydra's double quotes. Interpolations (``${key}``) keep their meaning."""
    # Only backslashes before a quote, the closing one included, count as escapes.
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", escaped) + '"'


def quote_literal(text: str) -> str:
    """The same for a text in which ``${`` is no interpolation."""
    return quote(re.sub(r"(\\*)\$\{", r"\1\1\\${", text))


def override_word(key: str, text: str) -> str:
    """``key=text`` as one word to paste into a shell."""
    plain = PLAIN.fullmatch(text) and text.lower() not in KEYWORDS
    return shlex.quote(f"{key}={text if plain else quote_literal(text)}")
