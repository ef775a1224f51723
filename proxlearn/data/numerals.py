"""Numbers in the notation of tables: Python accepts more, such as 1_0 or digits of other scripts."""

from __future__ import annotations


def parse_numeral(text: str) -> float | None:
    """Return the number that a string denotes; None where it is not a number."""
    if not text.isascii() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
