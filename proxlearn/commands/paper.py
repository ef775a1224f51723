"""The paper reproduced: its runs, and the tables and figures that are made from them.

  python scripts/paper.py table4          make the runs that Table 4 lacks, then the table
  python scripts/paper.py --only runs     all runs, in the order of reproduce/plan.py; stop it and start it at any time
  python scripts/paper.py --only build    all tables and figures, from the runs as they are
  python scripts/paper.py --quick         everything with a hundredth of the steps, into outputs/paper-quick

A second process with the same command works beside the first: each leaves alone the run that the other is at.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proxlearn.errors import did_you_mean
from reproduce import comparison, figures, health, shd, sine, wdbc
from reproduce.plan import PLAN
from reproduce.runner import make, say
from reproduce.table import Table

Builder = Callable[[Path], Table | list[Path]]


@dataclass(frozen=True)
class Target:
    """What is built, and the plan's entries that it is built from."""

    build: Builder
    entries: tuple[str, ...]


TARGETS = {
    "table1": Target(wdbc.table1, ("table1", "table1-seeds", "table1-float64")),
    "table2": Target(wdbc.table2, ("table2", "table2-seeds", "table2-more")),
    "table3": Target(wdbc.table3, ("table2", "table2-seeds", "table3", "table3-seeds")),
    "table4": Target(comparison.table4, ("table4",)),
    "table5": Target(sine.table5, ("table5", "table5-pdf", "table5-points")),
    "fig2": Target(figures.fig2, ("table2", "table1", "table1-float64")),
    "fig3": Target(figures.fig3, ("fig3-cloud", "fig3-start", "fig3")),
    "shd": Target(shd.shd, ("fig3-cloud", "fig3-start", "fig3")),
    "fig4": Target(figures.fig4, ("fig4",)),
    "fig5": Target(figures.fig5, ("fig5",)),
    "health": Target(health.health, tuple(each.name for each in PLAN)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)}; all of them if none")
    parser.add_argument("--only", choices=("runs", "build"), help="make the runs only, or build from them as they are")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the steps, into outputs/paper-quick")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="another folder than outputs/paper[-quick]")
    parsed = parser.parse_args()
    for name in parsed.targets:
        if name not in TARGETS:
            parser.error(f"no target `{name}`; {did_you_mean(name, TARGETS)}")
    targets = [TARGETS[name] for name in parsed.targets or TARGETS]
    root = parsed.into or Path("outputs/paper-quick" if parsed.quick else "outputs/paper")
    if root.is_dir() and any(root.iterdir()) and not (root / "runs").is_dir():
        parser.error(f"{root} holds other files and none of the paper's runs: choose another --into")
    code = 0
    if parsed.only != "build":
        names = {name for target in targets for name in target.entries}
        code = make([each for each in PLAN if each.name in names], root, parsed.quick)
    if parsed.only != "runs" and code <= 128:
        for target in targets:
            if not any((root / "runs" / name).is_dir() for name in target.entries):
                say(f"{target.build.__name__}: none of its runs has begun; `make paper-runs` makes them")
                continue
            for path in build(target, root):
                say(str(path))
    return code


def build(target: Target, root: Path) -> list[Path]:
    made = target.build(root)
    return made.write(root) if isinstance(made, Table) else made


if __name__ == "__main__":
    sys.exit(main())
