"""Result tables, written as CSV, Markdown and LaTeX files, and verdicts on whether results agree with the paper's.

The CSV and LaTeX files have all columns in one table. The Markdown page states the conclusion first and then splits the
columns into several narrow tables.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxlearn.compare.statistics import MeanSd, without_negative_zero
from proxlearn.files.atomic import write_atomically
from proxlearn.paper.archive import ArchivedRun
from proxlearn.views.tables import tabular

PARTIAL = "no verdict: partial"


def verdict(ours: MeanSd, paper: MeanSd, allowance: float, digits: int, complete: bool) -> str:
    """Return a verdict on whether our mean agrees with the paper's, with their difference to ``digits`` decimal places.

    The means agree if they differ by at most ``allowance`` or twice their joint standard deviation. The verdict is
    PARTIAL if ``complete`` is false or our mean is NaN.
    """
    if not complete or math.isnan(ours.mean):
        return PARTIAL
    difference = f"{without_negative_zero(ours.mean - paper.mean, digits):+.{digits}f}"
    distance = abs(ours.mean - paper.mean)
    spread = 2 * math.hypot(*(0.0 if math.isnan(figure.sd) else figure.sd for figure in (ours, paper)))
    if distance <= spread:
        return f"agrees within the spread ({difference})"
    if distance <= allowance:
        return f"agrees within {allowance:.{digits}f} ({difference})"
    # The spread of a single run is unknown.
    one_run = " (one run)" if math.isnan(ours.sd) else ""
    return f"differs by {difference}{one_run}"


def conclusion(verdicts: Mapping[str, str], noun: str, unit: str = "") -> str:
    """Return one line that states how many results agree and which do not.

    ``verdicts`` maps subjects to verdicts, ``noun`` names the results in the plural, and ``unit`` is appended to the
    number of each difference.
    """
    decided = {name: words for name, words in verdicts.items() if words != PARTIAL}
    partial = [name for name in verdicts if name not in decided]
    different = [
        f"{name} {re.sub('^differs by [^ ]+', lambda words: words[0] + unit, words)}"
        for name, words in decided.items()
        if words.startswith("differs")
    ]
    if not decided:
        return f"There is no verdict, because the runs are shorter than the paper's ({len(partial)} {noun})."
    agreeing = len(decided) - len(different)
    if len(decided) > 1 and not different:
        count = "Both" if len(decided) == 2 else f"All {len(decided)}"
        line = f"{count} {noun} agree with the paper's."
    else:
        line = f"{agreeing} of {len(decided)} {noun} agree with the paper's"
        line += f"; {'; '.join(different)}." if different else "."
    return line + (
        f" There is no verdict on {', '.join(partial)}, because runs are missing or too short." if partial else ""
    )


def is_complete(runs: Sequence[ArchivedRun], steps: int) -> bool:
    """Return whether there are runs and all of them have at least ``steps`` recursions."""
    return bool(runs) and all(run.last_step >= steps for run in runs)


def length_text(runs: Sequence[ArchivedRun], steps: int | None = None) -> str:
    """Return the range of the runs' lengths as text, followed by "of STEPS" if a run is shorter than ``steps``."""
    lengths = sorted({run.last_step for run in runs})
    text = " to ".join(str(length) for length in dict.fromkeys((lengths[0], lengths[-1]))) if lengths else "none"
    return text if steps is None or is_complete(runs, steps) else f"{text} of {steps}"


SOURCES = "sources.txt"
"""File with the commands that produced the pages of a folder, in one section per page."""


@dataclass(frozen=True)
class LabelledCell:
    """A cell with a value for the CSV file and a different text for the page, for example if some runs diverged."""

    value: str | float | MeanSd
    text: str


Cell = str | int | float | MeanSd | LabelledCell


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: its name, and the number of decimal places of its numbers."""

    name: str
    digits: int = 2
    short: str = ""
    """Shorter heading for the Markdown page; if it is empty, the heading is the name."""

    @property
    def heading(self) -> str:
        return self.short or self.name


@dataclass(frozen=True)
class TableRow:
    """The cells of a row in the order of the columns, and the runs from which they are computed."""

    cells: Sequence[Cell]
    runs: Sequence[ArchivedRun]


@dataclass(frozen=True)
class PageSection:
    """A table on a page: its title, the names of its columns, and a function that selects its rows."""

    title: str
    columns: Sequence[str]
    has_row: Callable[[TableRow], bool] = lambda row: True


@dataclass(frozen=True)
class ResultTable:
    """A result table: its rows and columns, its conclusion, and its notes."""

    name: str
    title: str
    conclusion: str
    columns: Sequence[TableColumn]
    sections: Sequence[PageSection]
    rows: Sequence[TableRow]
    notes: Sequence[str]

    @property
    def runs(self) -> list[ArchivedRun]:
        return list({run.name: run for row in self.rows for run in row.runs}.values())

    def write(self, folder: Path) -> list[Path]:
        """Write all files of the table, and return their paths."""
        contents = {".csv": self._csv(), ".md": self._markdown(), ".tex": self._latex()}
        paths = [folder / f"{self.name}{ending}" for ending in contents]
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in zip(paths, contents.values(), strict=True):
            write_atomically(path, content.encode())
        return [*paths, write_sources(folder, self.name, self.runs)]

    def section(self, section: PageSection) -> str:
        """Return a section of the page as a Markdown table."""
        places = [next(i for i, column in enumerate(self.columns) if column.name == name) for name in section.columns]
        lines = [[self.columns[i].heading for i in places]]
        for row, texts in zip(self.rows, self._texts(), strict=True):
            if section.has_row(row):
                lines.append([texts[i] for i in places])
        return markdown_table(lines)

    def _texts(self) -> list[list[str]]:
        return [
            [cell_text(cell, column.digits) for cell, column in zip(row.cells, self.columns, strict=True)]
            for row in self.rows
        ]

    def _csv(self) -> str:
        """Return the table as CSV text; each row ends with its runs, their seeds and versions, and the command.

        Means and standard deviations are in separate columns, with six significant digits.
        """
        values = [[_value(cell) for cell in row.cells] for row in self.rows]
        has_sd = [any(isinstance(cell, MeanSd) for cell in column) for column in zip(*values, strict=True)]
        lines: list[list[str]] = [[]]
        for column, two in zip(self.columns, has_sd, strict=True):
            lines[0] += [column.name, f"{column.name} sd"] if two else [column.name]
        lines[0] += ["made from", "seeds", "version", "command"]
        for row, cells in zip(self.rows, values, strict=True):
            line: list[str] = []
            for cell, two in zip(cells, has_sd, strict=True):
                line += _csv_cells(cell)[: 1 + two]
            versions = sorted({run.status["versions"]["proxlearn"] for run in row.runs})
            seeds = [str(run["seed"]) for run in row.runs]
            names = " ".join(run.name for run in row.runs)
            lines.append([*line, names, " ".join(seeds), " ".join(versions), f"make {self.name}"])
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows(lines)
        return content.getvalue()

    def _markdown(self) -> str:
        tables = "".join(f"## {section.title}\n\n{self.section(section)}\n" for section in self.sections)
        notes = "".join(f"- {note}\n" for note in self.notes)
        return f"# {self.title}\n\n{self.conclusion}\n\n{tables}{notes}- {sources_note(self.name)}\n"

    def _latex(self) -> str:
        lines = [f"% {line}" for line in sources(self.name, self.runs)]
        return "\n".join([*lines, *tabular([column.name for column in self.columns], self._texts())]) + "\n"


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return an aligned Markdown table; the first of ``lines`` contains the headings."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    aligned = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    aligned.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(aligned) + "\n"


def cell_text(cell: Cell, digits: int) -> str:
    """Return the text of a cell, with ``digits`` decimal places for a number."""
    if isinstance(cell, LabelledCell):
        return cell.text
    number = MeanSd(cell) if isinstance(cell, float) else cell
    return number.text(digits) if isinstance(number, MeanSd) else str(number)


def sources(name: str, runs: Iterable[ArchivedRun]) -> list[str]:
    """Return lines on the origin of a file: its command, then the version, steps and command of each run."""
    lines = [f"make {name}"]
    for run in runs:
        status = run.status
        version, machine = status["versions"]["proxlearn"], f"{status['engine']}, {status['dtype']}"
        # Revision 1 of the recursion was not stored in the status.
        machine += f", revision {status.get('revision', 1)}"
        lines.append(
            f"proxlearn {version} ({machine}), {run.last_step} of {status['steps']} steps: {status['command']}"
        )
    return lines


def write_sources(folder: Path, name: str, runs: Iterable[ArchivedRun]) -> Path:
    """Write the sources of a page to a section of sources.txt in ``folder``, and return the path of this file."""
    path = folder / SOURCES
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    # A section begins with the command of its page; the command of a run is at the end of a line.
    sections = {section.partition("\n")[0]: section.strip() for section in f"\n{text}".split("\nmake ")[1:]}
    sections[name] = "\n".join(sources(name, runs)).removeprefix("make ")
    write_atomically(path, ("\n\n".join(f"make {sections[key]}" for key in sorted(sections)) + "\n").encode())
    return path


def sources_note(name: str) -> str:
    return f"Commands, versions and seeds of the runs: {SOURCES}, section {name}."


def _value(cell: Cell) -> str | int | float | MeanSd:
    return cell.value if isinstance(cell, LabelledCell) else cell


def _csv_cells(value: str | int | float | MeanSd) -> list[str]:
    """Return two cells: a number and its standard deviation, or a string and an empty cell."""
    number = MeanSd(value) if isinstance(value, float) else value
    return [_number(number.mean), _number(number.sd)] if isinstance(number, MeanSd) else [str(number), ""]


def _number(value: float) -> str:
    return "" if value != value else f"{value:.6g}"
