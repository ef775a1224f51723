"""Format tables as Markdown or LaTeX, and lists of words as enumerations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

REPLACEMENTS = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "±": r"$\pm$",
    "−": "$-$",
    "^": r"\^{}",
    "<": "$<$",
    ">": "$>$",
}


def tabular(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a LaTeX tabular environment with left-aligned columns."""
    lines = [r"\begin{tabular}{" + "l" * len(head) + "}", r"\hline"]
    lines += [" & ".join(escape_latex(name) for name in head) + r" \\ \hline"]
    lines += [" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in rows]
    return [*lines, r"\hline", r"\end{tabular}"]


def escape_latex(text: str) -> str:
    """Escape the characters that have a special meaning in LaTeX."""
    return "".join(REPLACEMENTS.get(character, character) for character in text)


def markdown(table: pd.DataFrame) -> str:
    """Return a table as aligned Markdown; floats have four significant digits, and missing values are empty cells."""
    rows = (list(table.columns), *table.itertuples(index=False))
    cells = [[escape_cell(format_cell(value)) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def format_cell(value: object) -> str:
    """Return a value as a string: a float with four significant digits, and a missing value as an empty string."""
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return str(value)


def plain_number(value: float) -> str:
    """Return a number with at least four significant digits, and without an exponent between 1e4 and 1e9."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def enumeration(words: Sequence[str]) -> str:
    """Return the words as an enumeration: "a", "a and b", or "a, b and c"."""
    return " and ".join((", ".join(words[:-1]), words[-1]) if len(words) > 1 else words)


def escape_cell(text: str) -> str:
    """Escape the text of a Markdown cell, because a `|` or a line break would start another cell or row."""
    # Backslashes before a `|` are doubled; otherwise they would escape one another, and the `|` would end the cell.
    return re.sub(r"(\\*)\|", r"\1\1\\|", " ".join(text.splitlines()))
