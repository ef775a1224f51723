"""Numbers as a table writes them: Python's own notation has more, such as 1_0 or digits of other scripts."""

from __future__ import annotations


def parse_numeral(text: str) -> float | None:
    """What the text stands for; None where it is no number."""
    if not text.isascii() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
