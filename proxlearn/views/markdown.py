"""Format tables in Markdown, for the terminal and for .md files."""

from __future__ import annotations

import re

import pandas as pd


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


def escape_cell(text: str) -> str:
    """Escape the text of a cell, because a `|` or a line break would start another cell or row."""
    # Backslashes before a `|` are doubled; otherwise they would escape one another, and the `|` would end the cell.
    return re.sub(r"(\\*)\|", r"\1\1\\|", " ".join(text.splitlines()))
