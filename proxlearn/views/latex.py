"""Format tables in LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    """Return the lines of a tabular environment with left-aligned columns."""
    lines = [r"\begin{tabular}{" + "l" * len(head) + "}", r"\hline"]
    lines += [" & ".join(escape_latex(name) for name in head) + r" \\ \hline"]
    lines += [" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in rows]
    return [*lines, r"\hline", r"\end{tabular}"]


def escape_latex(text: str) -> str:
    """Escape the characters that have a special meaning in LaTeX."""
    return "".join(REPLACEMENTS.get(character, character) for character in text)
