"""Tables for papers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SIGNS = {
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
    """The lines of a tabular: left-aligned columns under their names."""
    lines = [r"\begin{tabular}{" + "l" * len(head) + "}", r"\hline"]
    lines += [" & ".join(escaped(name) for name in head) + r" \\ \hline"]
    lines += [" & ".join(escaped(cell) for cell in row) + r" \\" for row in rows]
    return [*lines, r"\hline", r"\end{tabular}"]


def escaped(words: str) -> str:
    return "".join(SIGNS.get(sign, sign) for sign in words)
