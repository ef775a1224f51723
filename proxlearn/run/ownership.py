"""Which folders hold a run, a sweep or a comparison: nothing is written into, or deleted from, a folder of others.

A run folder is recognised by its config.yaml or its status.json, a sweep folder by its sweep.yaml, a comparison by a
plan, a split or a cell, all also where version 0.1.0 made them. One file that is intact is enough, so that a damaged
run can be started again. A config.yaml alone may be a copy that a user made: beside it, every file that a run would
replace must be recognised too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from proxlearn.errors import InputError
from proxlearn.files.atomic import is_temporary
from proxlearn.files.safe_read import UnreadableFile, open_regular
from proxlearn.run.run_folder import WRITTEN

CONFIG_KEYS = (b"dataset", b"recipe", b"N", b"epsilon", b"rho0")
"""Top-level keys of config.yaml that together no other program's config has."""
STAGING = (".proxlearn-new", ".proxlearn-ready", ".proxlearn-old", ".proxlearn-placed")
"""Folders of an overwrite on its way (run/overwrite.py)."""
SIGNED = b'{"pid": '
"""How the content of a lock file begins (run/lock.py)."""
PLAN_START = re.compile(rb'\{\s*"command":\s*"proxlearn compare')
SPLIT_START = re.compile(rb'\{\s*"format":\s*"proxlearn-split-')
CELL_START = re.compile(rb'\{\s*"format":\s*"proxlearn-cell-')
RESULTS_START = re.compile(rb'\{"format": "proxlearn-results-\d+"\}\n')
"""How the files of a comparison begin (compare/); files per split and per cell are those of version 0.1.0."""
STARTS = {
    "model.json": re.compile(rb'\{\s*"format":\s*"proxlearn-model-'),
    "selection.json": re.compile(rb'\{\s*"format":\s*"proxlearn-selection-'),
    "metrics.csv": re.compile(rb"step,"),
    "points.csv": re.compile(rb"part,x0"),
    "accuracy.csv": re.compile(rb"part,estimate,"),
    "confusion.csv": re.compile(rb"part,estimate,actual,"),
}
"""How a run's files begin; other files of a run are recognised only beside its status or its checkpoints."""
MOST_BYTES = 2**20
"""Read of a file that may be anything."""


def is_run(folder: Path) -> bool:
    """Whether ``folder`` holds a run of proxlearn, complete or not."""
    # While an overwrite is on its way, they are in a folder below.
    return any(_has_marker(path) for path in (folder, *(folder / stage for stage in STAGING[1:3])))


def _has_marker(folder: Path) -> bool:
    config = _content(folder / "config.yaml")
    return all(re.search(rb"^%s:" % key, config, re.MULTILINE) for key in CONFIG_KEYS) or _has_status(folder)


def _has_status(folder: Path) -> bool:
    versions = _json(folder / "status.json").get("versions")
    return isinstance(versions, dict) and "proxlearn" in versions


def _unrecognised(folder: Path) -> list[str]:
    """Files with a run's names that a run did not write, in a folder whose only other sign of a run is its config.

    A checkpoint or a status shows that a run was here: then damaged files are the run's.
    """
    if _has_status(folder) or any(folder.glob("checkpoints/cloud-*")) or any((folder / s).is_dir() for s in STAGING):
        return []
    present = sorted(name for name in WRITTEN - {"config.yaml", "train.log"} if (folder / name).is_file())
    return [name for name in present if name not in STARTS or not begins_with(folder / name, STARTS[name])]


def require_run_or_empty(folder: Path) -> None:
    """Refuse a folder with files that are not a run's; one in which a run was killed at its start is as good as empty.

    A link is left to the caller, which refuses it by name.
    """
    refuse_stages(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise InputError(f"{folder} is not a folder", "choose another hydra.run.dir") from error
    foreign = [entry.name for entry in entries if not _is_transient(entry)]
    if foreign and not is_run(folder):
        raise foreign_files_error(folder, foreign, "run")
    unrecognised = _unrecognised(folder)
    if unrecognised:
        problem = f"{folder} holds a config.yaml of proxlearn, and {', '.join(unrecognised[:3])} that no run wrote"
        raise InputError(problem, "choose a new or an empty folder: hydra.run.dir=...")


def refuse_stages(folder: Path) -> None:
    """Refuse a folder inside a stage of an overwrite, which would be deleted with it."""
    for name in STAGING:
        if name in folder.parts:
            raise InputError(f"{name} in {folder} is a name that proxlearn uses itself", "choose another folder")


def require_sweep_or_empty(folder: Path) -> None:
    """The same for the folder of a sweep."""
    refuse_stages(folder)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [path.name for path in paths if not is_temporary(path)]
    started = names == ["jobs"] and (folder / "jobs").is_dir() and not any((folder / "jobs").iterdir())
    plan = _content(folder / "sweep.yaml")
    ours = plan.startswith(b"command:") and re.search(rb"^jobs:", plan, re.MULTILINE)
    if names and not started and not ours:
        raise foreign_files_error(folder, names, "sweep")


def require_comparison_or_empty(folder: Path) -> None:
    """The same for the output folder of `proxlearn compare`."""
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else []
    foreign = [entry.name for entry in entries if not _is_transient(entry)]
    if foreign and not is_comparison(folder):
        raise foreign_files_error(folder, foreign, "comparison", "--output FOLDER")


def is_comparison(folder: Path) -> bool:
    """Whether ``folder`` is the output folder of a `proxlearn compare`, complete or not."""
    markers = {
        "*/plan.json": PLAN_START,
        "splits.jsonl": RESULTS_START,
        "cells.jsonl": RESULTS_START,
        "splits/*.json": SPLIT_START,
        "cells/*/*.json": CELL_START,
    }
    return any(begins_with(path, start) for names, start in markers.items() for path in folder.glob(names))


def begins_with(path: Path, start: re.Pattern[bytes]) -> bool:
    """Whether ``path`` is a regular file, no link, whose content begins so."""
    return is_regular(path) and start.match(_content(path)) is not None


def is_lock(path: Path) -> bool:
    """Whether a lock file is proxlearn's: signed, cut off by a full disk, or released meanwhile."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(status.st_mode) and _content(path)[: len(SIGNED)] == SIGNED[: status.st_size]


def is_regular(path: Path) -> bool:
    """Whether ``path`` is a file, and no link to one."""
    return path.is_file() and not path.is_symlink()


def foreign_files_error(folder: Path, names: list[str], kind: str, option: str | None = None) -> InputError:
    shown = ", ".join(ascii(name)[1:-1][:40] for name in names[:3]) + (", ..." if len(names) > 3 else "")
    problem = f"{folder} holds other files ({shown}) and no {kind} of proxlearn"
    return InputError(problem, f"choose a new or an empty folder: {option or f'hydra.{kind}.dir=...'}")


def refuse_table_inside(table: str | None, folder: Path) -> None:
    """Refuse a training table that the run would replace by a file of its own."""
    if table is None:
        return
    path = Path(os.path.realpath(os.path.expanduser(table)))
    if path.parent == Path(os.path.realpath(folder)) and path.name in WRITTEN:
        problem = f"dataset.path={table} is a file that the run writes itself"
        raise InputError(problem, "rename the table, or choose another folder")


def _is_transient(entry: os.DirEntry[str]) -> bool:
    """What a killed process may leave where no run has begun: a lock, an unfinished file, nothing of value."""
    path = Path(entry.path)
    if entry.is_dir(follow_symlinks=False):
        return entry.name in STAGING or (entry.name in ("checkpoints", "splits") and _holds_temporaries_only(path))
    if not entry.is_file(follow_symlinks=False):
        return False
    if entry.name == ".lock-owner":
        return True
    if entry.name == ".lock":
        return is_lock(path)
    if entry.name == "selection.json":
        # Written before the config: what was selected is kept if the run is killed then.
        return str(_json(path).get("format", "")).startswith("proxlearn-selection-")
    return is_temporary(path)


def _holds_temporaries_only(folder: Path) -> bool:
    return all(is_temporary(path) for path in folder.iterdir())


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_content(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _content(path: Path) -> bytes:
    """The first bytes of a regular file; nothing of a link, a device, or what cannot be read."""
    with contextlib.suppress(OSError, UnreadableFile), os.fdopen(open_regular(path), "rb") as file:
        return file.read(MOST_BYTES)
    return b""
