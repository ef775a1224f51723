"""The files in an output folder that `proxlearn compare` wrote itself: no other file is replaced or deleted.

The caches, plans and the log are recognised by their beginning. Tables and plots are listed in the plan beside them.
Version 0.1.0 kept a file per cell and per split (cells/, splits/): they are neither read nor changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from proxlearn.baselines.method import Block
from proxlearn.compare.spec import CELLS, LOG, SPLITS, ComparisonSpec
from proxlearn.errors import InputError
from proxlearn.files.atomic import write_json
from proxlearn.files.safe_read import UnreadableFile, read_json
from proxlearn.run.ownership import PLAN_START, RESULTS_START, begins_with, is_lock, is_regular

PLAN = "plan.json"
UNREADABLE = (UnreadableFile, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""Errors that reading a JSON file can raise if any program may have written the file."""
BLOCK_FILES: dict[Block, str] = {"network": "networks", "sampler": "samplers"}
"""Names of a block's tables and plots, without their endings."""
REFERENCES = "references"
"""The same name for a comparison of reference lines only."""
ENDINGS = ("csv", "tex", "png", "pdf")
LOG_START = re.compile(rb"[^\n]+, split \w+, [^\n]+ \.\.\.\n|\Z")
"""The first line of the log (see measure.run_cell); a process that is killed at its start leaves it empty."""
REMEDY = "move it to another place, or choose another --output"


def table_names(blocks: Collection[str], protocol: str) -> list[str]:
    """Return the names of the tables and plots of a comparison whose methods are in these blocks."""
    stems = [stem for block, stem in BLOCK_FILES.items() if block in blocks] or [REFERENCES]
    paper = ["paper.csv", "paper.tex"] if protocol == "paper" else []
    return ["compare.md", *(f"{stem}.{ending}" for stem in stems for ending in ENDINGS), *paper]


KNOWN_NAMES = {*table_names(BLOCK_FILES, "paper"), *table_names((), "paper")}


def recorded_names(folder: Path) -> set[str]:
    """Return the names of the tables and plots in ``folder`` that the command wrote, according to its plan.

    A plan of version 0.1.0 has no such list: its files follow from the plan's methods.
    """
    if not begins_with(folder / PLAN, PLAN_START):
        return set()
    try:
        plan = read_json(folder / PLAN)
        if "files" in plan:
            names = set(plan["files"])
        else:
            names = set(table_names({method["block"] for method in plan["methods"]}, plan["protocol"]))
    except UNREADABLE:
        return set()
    # An edited plan must not name a file elsewhere.
    return {name for name in names & KNOWN_NAMES if is_regular(folder / name)}


def record_names(folder: Path, names: Iterable[str]) -> None:
    """List ``names`` in the plan of ``folder``."""
    plan = read_json(folder / PLAN)
    files = sorted(names)
    if plan.get("files") != files:
        write_json(folder / PLAN, plan | {"files": files})


def refuse_foreign_files(spec: ComparisonSpec, output: Path) -> None:
    """Refuse an output folder in which the command would change a user's own file."""
    tables = output / spec.name
    for folder in (output, tables):
        if os.path.lexists(folder) and not folder.is_dir():
            raise InputError(f"{folder} is not a folder", REMEDY)
    starts = {
        output / LOG: LOG_START,
        tables / PLAN: PLAN_START,
        output / CELLS: RESULTS_START,
        output / SPLITS: RESULTS_START,
    }
    foreign = [path for path, start in starts.items() if os.path.lexists(path) and not begins_with(path, start)]
    lock = output / ".lock"
    if os.path.lexists(lock) and not is_lock(lock):
        foreign.append(lock)
    refuse_paths(foreign)
    refuse_foreign_tables(tables, table_names({method.block for method in spec.methods}, spec.protocol))


def refuse_foreign_tables(folder: Path, names: Iterable[str]) -> None:
    recorded = recorded_names(folder)
    refuse_paths(folder / name for name in names if name not in recorded and os.path.lexists(folder / name))


def refuse_paths(foreign: Iterable[Path]) -> None:
    """Raise an InputError if ``foreign`` contains any path; `proxlearn compare` did not write these files."""
    paths = list(foreign)
    if paths:
        others = f", nor were {len(paths) - 1} others" if len(paths) > 1 else ""
        raise InputError(f"{paths[0]} was not written by `proxlearn compare`{others}", REMEDY)
