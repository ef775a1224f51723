"""Build the tables, figures and pages of `proxlearn paper` from the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from proxlearn.paper import curves_page, figures, health_page, shd_table, sine_table, table4, wdbc_tables
from proxlearn.paper.archive import Archive
from proxlearn.paper.result_table import ResultTable
from proxlearn.paper.run_plan import PLAN, PlanEntry
from proxlearn.paper.target_names import TARGETS

TABLES: dict[str, Callable[[Archive], ResultTable]] = {
    "table1": wdbc_tables.table1,
    "table2": wdbc_tables.table2,
    "table3": wdbc_tables.table3,
    "table4": table4.table4,
    "table5": sine_table.table5,
    "shd": shd_table.shd_table,
}
PAGES: dict[str, Callable[[Archive], list[Path]]] = {
    "fig2": figures.fig2,
    "fig3": figures.fig3,
    "fig4": figures.fig4,
    "fig5": figures.fig5,
    "curves": curves_page.curves,
    "health": health_page.health,
}


def target_entries(names: Iterable[str]) -> list[PlanEntry]:
    """Return the plan entries from which the named targets are built, in the order of the plan."""
    entries = {entry for name in names for entry in TARGETS[name] or [entry.name for entry in PLAN]}
    return [entry for entry in PLAN if entry.name in entries]


def build(name: str, archive: Archive) -> list[Path]:
    """Build one target and return the paths of the files that were written.

    No file is written if the archive contains no run of the target.
    """
    if not archive.runs(*(entry.name for entry in target_entries([name]))):
        return []
    return TABLES[name](archive).write(archive.root) if name in TABLES else PAGES[name](archive)
