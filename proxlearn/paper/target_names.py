"""Names of the targets of `proxlearn paper`; this module has no slow imports, so arguments are checked quickly."""

from __future__ import annotations

from collections.abc import Iterable

from proxlearn.errors import InputError, did_you_mean

TARGETS: dict[str, tuple[str, ...]] = {
    "table1": ("table1", "table1-seeds", "table1-float64"),
    "table2": ("table2", "table2-seeds", "table2-more"),
    "table3": ("table2", "table2-seeds", "table3", "table3-seeds"),
    "table4": ("table4",),
    "table5": ("table5", "table5-pdf", "table5-points"),
    "fig2": ("table2", "table1", "table1-float64"),
    "fig3": ("fig3-cloud", "fig3-start", "fig3"),
    "shd": ("fig3-cloud", "fig3-start", "fig3"),
    "fig4": ("fig4",),
    "fig5": ("fig5",),
    "curves": ("table2", "table2-seeds", "table1-float64", "fig3", "fig3-seeds", "fig4", "fig5", "free-energy-wdbc"),
    "health": (),
}
"""Targets (tables, figures, and the pages curves and health), with the plan entries (run_plan.py) from which each
target is built. An empty tuple stands for all entries."""
MEASUREMENTS = ("tuned", "weights", "losses", "estimators")
"""Pages that are built from stored results of fits and not from runs."""
GROUPS = {
    "tables": ("table1", "table2", "table3", "table4", "table5", "shd"),
    "figures": ("fig2", "fig3", "fig4", "fig5"),
    "all": (*TARGETS, *MEASUREMENTS),
}
RUNS = "runs"
"""The argument that requests training of the missing runs before the targets are built."""


def parse_targets(words: Iterable[str], quick: bool) -> list[str]:
    """Return the targets that the arguments ``words`` name, without duplicates, or all targets if they name none.

    If ``quick`` is true, groups do not include the measurements, and a measurement in ``words`` raises InputError.
    """
    names: list[str] = []
    for word in [word for word in words if word != RUNS] or ["all"]:
        if word in GROUPS:
            names += [name for name in GROUPS[word] if not (quick and name in MEASUREMENTS)]
        elif word in (*TARGETS, *MEASUREMENTS):
            names.append(word)
        else:
            raise InputError(f"unknown target `{word}`", did_you_mean(word, (*TARGETS, *MEASUREMENTS, *GROUPS, RUNS)))
        if quick and word in MEASUREMENTS:
            raise InputError(f"`{word}` does not support --quick", "leave out --quick")
    return list(dict.fromkeys(names))
