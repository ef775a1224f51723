"""Recognise the files that `proxlearn compare` wrote, so that no other file is replaced or deleted.

The caches, the plan and the log are recognised by their first bytes. Tables and plots are listed in the plan in the
same folder. Version 0.1.0 wrote one file per cell and per split (cells/, splits/); these files are neither read nor
changed.
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
from proxlearn.run.folder_recognition import PLAN_START, RESULTS_START, begins_with, is_lock, is_regular

PLAN = "plan.json"
UNREADABLE = (UnreadableFile, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""Errors that can occur when a JSON file with arbitrary content is read."""
BLOCK_FILES: dict[Block, str] = {"network": "networks", "sampler": "samplers"}
"""File names of the tables and plots of each block, without suffix."""
REFERENCES = "references"
"""File name, without suffix, for a comparison that has only reference methods."""
ENDINGS = ("csv", "tex", "png", "pdf")
LOG_START = re.compile(rb"[^\n]+, split \w+, [^\n]+ \.\.\.\n|\Z")
"""Pattern of the first line of the log (see measure.run_cell); the log is empty if its process was killed early."""
REMEDY = "move it elsewhere, or choose another --output"


def table_names(blocks: Collection[str], protocol: str) -> list[str]:
    """Return the file names of the tables and plots of a comparison with methods in ``blocks``."""
    stems = [stem for block, stem in BLOCK_FILES.items() if block in blocks] or [REFERENCES]
    paper = ["paper.csv", "paper.tex"] if protocol == "paper" else []
    return ["compare.md", *(f"{stem}.{ending}" for stem in stems for ending in ENDINGS), *paper]


KNOWN_NAMES = {*table_names(BLOCK_FILES, "paper"), *table_names((), "paper")}


def recorded_names(folder: Path) -> set[str]:
    """Return the names of the tables and plots in ``folder`` that its plan lists as written by the command.

    A plan of version 0.1.0 has no list; the names are then derived from the methods in the plan.
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
    # An edited plan must not lead to the deletion of other files.
    return {name for name in names & KNOWN_NAMES if is_regular(folder / name)}


def record_names(folder: Path, names: Iterable[str]) -> None:
    """Store ``names`` in the plan of ``folder`` as the files that the command wrote."""
    plan = read_json(folder / PLAN)
    files = sorted(names)
    if plan.get("files") != files:
        write_json(folder / PLAN, plan | {"files": files})


def refuse_foreign_files(spec: ComparisonSpec, output: Path) -> None:
    """Raise InputError if the command would overwrite a file in the output folder that it did not write."""
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
    """Raise InputError if ``foreign``, the paths that `proxlearn compare` did not write, is not empty."""
    paths = list(foreign)
    if paths:
        if len(paths) == 1:
            raise InputError(f"{paths[0]} was not written by `proxlearn compare`", REMEDY)
        problem = f"{paths[0]} and {len(paths) - 1} more were not written by `proxlearn compare`"
        raise InputError(problem, "move them elsewhere, or choose another --output")
