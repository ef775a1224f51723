"""``proxlearn data``: what there is to train on, where it comes from, and whether it is here."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

from proxlearn.data import dataset_files, registry
from proxlearn.data.dataset_files import VARIABLE, cache_folder
from proxlearn.data.table import DatasetInfo
from proxlearn.errors import InputError, did_you_mean

HEADER = ("dataset", "rows", "features", "classes", "licence", "present", "source")
RIGHT = ("rows", "features", "classes")


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn data",
        description="List the datasets, or fetch and verify their files.",
        epilog=f"A file is looked for at dataset.path, in the folder {VARIABLE}, and in the cache ({cache_folder()}).",
    )
    parser.add_argument("action", nargs="?", choices=("list", "fetch", "verify"), default="list")
    parser.add_argument("names", nargs="*", metavar="DATASET", help="for example banana; all of them if none is named")
    parsed = parser.parse_args(args)
    for name in parsed.names:
        if name not in registry.LOADERS:
            raise InputError(f"no dataset `{name}`", did_you_mean(name, registry.LOADERS))
    names: list[str] = parsed.names or list(registry.LOADERS)
    if parsed.action == "list":
        print(table([row(name) for name in names]), end="")
        return 0
    act = fetch if parsed.action == "fetch" else verify
    return max([each(act, name) for name in names])


def row(name: str) -> tuple[str, ...]:
    about = registry.dataset_info(name)
    counts = ("-" if count is None else str(count) for count in (about.rows, about.features, about.classes))
    return (name, *counts, about.licence, presence(about), about.source)


def presence(about: DatasetInfo) -> str:
    """In a word or a path; nothing is read."""
    if about.file is None:
        return "yes"
    found = dataset_files.find(about.file)
    return "no" if found is None else display(found)


def each(act: Callable[[DatasetInfo], str], name: str) -> int:
    """One dataset's line; a failure is said and the others go on."""
    about = registry.dataset_info(name)
    if about.file is None:
        print(f"{name}: no file of its own ({about.source}{installed(about)})")
        return 0
    try:
        print(f"{name}: {act(about)}")
    except InputError as error:
        print(f"{name}: {error}")
        return error.exit_code
    return 0


def fetch(about: DatasetInfo) -> str:
    """A file that is not here, or is damaged in the cache, is fetched."""
    assert about.file is not None
    found = dataset_files.find(about.file)
    if found is not None:
        try:
            dataset_files.verified(about.file, found)
            return f"{display(found)} is here already, sha256 as it should be"
        except InputError:
            if found.parent != cache_folder():
                raise
    dataset_files.fetch(about.file)
    return f"{display(cache_folder() / about.file.name)} fetched, sha256 as it should be"


def verify(about: DatasetInfo) -> str:
    """A file that is here must have the right sha256."""
    assert about.file is not None
    found = dataset_files.find(about.file)
    if found is None:
        return f"{about.file.name} is not here (`proxlearn data fetch` gets it)"
    dataset_files.verified(about.file, found)
    return f"{display(found)}: sha256 {about.file.sha256} as it should be"


def installed(about: DatasetInfo) -> str:
    """The version of the package that carries it, without importing the package."""
    return f" {importlib.metadata.version('scikit-learn')}" if "scikit-learn" in about.source else ""


def display(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def table(rows: list[tuple[str, ...]]) -> str:
    """Aligned columns; numbers to the right."""
    lines = [HEADER, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    aligned = (
        "  ".join(
            cell.rjust(width) if name in RIGHT else cell.ljust(width)
            for cell, width, name in zip(line, widths, HEADER, strict=True)
        ).rstrip()
        for line in lines
    )
    return "\n".join(aligned) + "\n"
