"""``proxlearn data``: list the datasets, fetch their files, and verify the files by checksum."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

from proxlearn.data import dataset_files, registry
from proxlearn.data.dataset_files import VARIABLE, cache_folder
from proxlearn.data.table import DatasetInfo
from proxlearn.errors import InputError, did_you_mean

HEADER = ("dataset", "rows", "features", "classes", "licence", "file", "source")
RIGHT_ALIGNED = ("rows", "features", "classes")


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="proxlearn data",
        description="List the datasets, fetch the files of those that need one, or verify the files by checksum.",
        epilog="A file is looked up at dataset.path, then in the folder that the environment variable "
        f"{VARIABLE} names, then in the cache ({cache_folder()}).",
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "fetch", "verify"),
        default="list",
        help="list: print a table of the datasets (default); fetch: download missing files into the cache; "
        "verify: compare the sha256 of each file with the expected value",
    )
    parser.add_argument("names", nargs="*", metavar="DATASET", help="names of datasets, such as banana (default: all)")
    parsed = parser.parse_args(args)
    for name in parsed.names:
        if name not in registry.DATASETS:
            raise InputError(f"unknown dataset `{name}`", did_you_mean(name, registry.DATASETS))
    names: list[str] = parsed.names or list(registry.DATASETS)
    if parsed.action == "list":
        print(format_table([table_row(name) for name in names]), end="")
        return 0
    action = fetch if parsed.action == "fetch" else verify
    return max([report(action, name) for name in names])


def table_row(name: str) -> tuple[str, ...]:
    try:
        info = registry.dataset_info(name)
    except InputError as error:
        # If a package with a dataset is broken, the other datasets are still listed.
        return (name, *("-",) * (len(HEADER) - 2), str(error))
    counts = ("-" if count is None else str(count) for count in (info.rows, info.features, info.classes))
    return (name, *counts, info.licence, file_location(info), info.source)


def file_location(info: DatasetInfo) -> str:
    """Return the path of the dataset's file, or a short text if there is no file; the file is not read."""
    if info.file is None:
        return "dataset.path" if "path" in info.reads else "none needed"
    path = dataset_files.find(info.file)
    return "not fetched" if path is None else home_relative(path)


def report(action: Callable[[DatasetInfo], str], name: str) -> int:
    """Print the result or the error of an action on one dataset, and return an exit code."""
    try:
        info = registry.dataset_info(name)
        if info.file is None:
            print(f"{name}: needs no file ({info.source}{package_version(info)})")
            return 0
        print(f"{name}: {action(info)}")
    except InputError as error:
        print(f"{name}: {error}")
        return error.exit_code
    return 0


def fetch(info: DatasetInfo) -> str:
    """Download the dataset's file if it is missing, or if its copy in the cache is damaged; return a message."""
    assert info.file is not None
    path = dataset_files.find(info.file)
    if path is not None:
        try:
            dataset_files.verified(info.file, path)
            return f"{home_relative(path)} is present and has the expected sha256"
        except InputError:
            if path.parent != cache_folder():
                raise
    dataset_files.fetch(info.file)
    return f"{home_relative(cache_folder() / info.file.name)} was fetched and has the expected sha256"


def verify(info: DatasetInfo) -> str:
    """Compare the sha256 of the dataset's file with the expected one, and return a message."""
    assert info.file is not None
    path = dataset_files.find(info.file)
    if path is None:
        return f"{info.file.name} is not on this machine (`proxlearn data fetch` downloads it)"
    dataset_files.verified(info.file, path)
    return f"{home_relative(path)} has the expected sha256 {info.file.sha256}"


def package_version(info: DatasetInfo) -> str:
    """Return a space and the version of scikit-learn if it provides the dataset, otherwise an empty string.

    scikit-learn is not imported.
    """
    return f" {importlib.metadata.version('scikit-learn')}" if "scikit-learn" in info.source else ""


def home_relative(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def format_table(rows: list[tuple[str, ...]]) -> str:
    """Format the rows as a table with aligned columns; numbers are right-aligned."""
    lines = [HEADER, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    aligned = (
        "  ".join(
            cell.rjust(width) if name in RIGHT_ALIGNED else cell.ljust(width)
            for cell, width, name in zip(line, widths, HEADER, strict=True)
        ).rstrip()
        for line in lines
    )
    return "\n".join(aligned) + "\n"
