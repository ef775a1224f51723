"""Parse numbers as written in tables; notations that only Python accepts (1_0, non-ASCII digits) are excluded."""

from __future__ import annotations


def parse_numeral(text: str) -> float | None:
    """Return the number that ``text`` denotes, or None if it does not denote a number."""
    if not text.isascii() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
