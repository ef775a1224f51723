"""A table as CSV for programs, Markdown for people and LaTeX for papers, each naming the runs it was made from."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxlearn.files.atomic import write_atomically
from proxlearn.views.latex import tabular
from reproduce.measured import MeanSd
from reproduce.source import Found

Cell = str | int | float | MeanSd


@dataclass(frozen=True)
class Column:
    """Its heading, and how many digits after the point its numbers have."""

    name: str
    digits: int = 2


@dataclass(frozen=True)
class Row:
    """Cells in the order of the columns, and the runs that they are made from."""

    cells: Sequence[Cell]
    runs: Sequence[Found]


@dataclass(frozen=True)
class Table:
    """Rows under columns, with what a reader must know of them."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str]

    @property
    def runs(self) -> list[Found]:
        return list({each.name: each for row in self.rows for each in row.runs}.values())

    def write(self, folder: Path) -> list[Path]:
        contents = {"csv": self._csv(), "md": self._markdown(), "tex": self._latex()}
        paths = [folder / f"{self.name}.{suffix}" for suffix in contents]
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in zip(paths, contents.values(), strict=True):
            write_atomically(path, content.encode())
        return paths

    def body(self) -> str:
        """The rows alone, in Markdown."""
        lines = [[column.name for column in self.columns], *self._texts()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        shown = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines]
        shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return "\n".join(shown) + "\n"

    def _texts(self) -> list[list[str]]:
        return [
            [text(cell, column.digits) for cell, column in zip(row.cells, self.columns, strict=True)]
            for row in self.rows
        ]

    def _csv(self) -> str:
        """Means and standard deviations as columns of their own, to six digits; the runs of each row at its end."""
        spread = [any(isinstance(row.cells[i], MeanSd) for row in self.rows) for i in range(len(self.columns))]
        lines: list[list[str]] = [[]]
        for column, both in zip(self.columns, spread, strict=True):
            lines[0] += [column.name, f"{column.name} sd"] if both else [column.name]
        lines[0] += ["made from", "seeds", "version", "command"]
        for row in self.rows:
            line: list[str] = []
            for cell, both in zip(row.cells, spread, strict=True):
                one = cell if isinstance(cell, MeanSd) else MeanSd(cell) if isinstance(cell, float) else cell
                values = [_number(one.mean), _number(one.sd)] if isinstance(one, MeanSd) else [str(one), ""]
                line += values[: 1 + both]
            versions = sorted({each.run.status["versions"]["proxlearn"] for each in row.runs})
            seeds = [str(each["seed"]) for each in row.runs]
            made_from = " ".join(each.name for each in row.runs)
            lines.append([*line, made_from, " ".join(seeds), " ".join(versions), f"make {self.name}"])
        shown = io.StringIO()
        csv.writer(shown, lineterminator="\n").writerows(lines)
        return shown.getvalue()

    def _markdown(self) -> str:
        notes = "".join(f"- {note}\n" for note in self.notes)
        made = "".join(f"    {line}\n" for line in provenance(self.name, self.runs))
        return f"# {self.title}\n\n{self.body()}\n{notes}\n## Made by\n\n{made}"

    def _latex(self) -> str:
        lines = [f"% {line}" for line in provenance(self.name, self.runs)]
        return "\n".join([*lines, *tabular([column.name for column in self.columns], self._texts())]) + "\n"


def text(cell: Cell, digits: int) -> str:
    if isinstance(cell, float):
        cell = MeanSd(cell)
    return cell.text(digits) if isinstance(cell, MeanSd) else str(cell)


def provenance(name: str, runs: Sequence[Found]) -> list[str]:
    """What made a file: its own command, then each run's command (which holds the seed), version and steps."""
    lines = [f"make {name}"]
    for each in runs:
        status = each.run.status
        version, machine = status["versions"]["proxlearn"], f"{status['engine']}, {status['dtype']}"
        lines.append(f"proxlearn {version} ({machine}), {each.made} of {status['steps']} steps: {status['command']}")
    return lines


def _number(value: float) -> str:
    return "" if value != value else f"{value:.6g}"
