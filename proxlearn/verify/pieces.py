"""Measurements that are divided into pieces of a few seconds; a piece is a job whose result is stored in a cache.

Repeating the command computes the missing pieces. A piece is a function with JSON arguments; its identity consists of
its part, its revision and its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxlearn.errors import InputError
from proxlearn.files.atomic import remove_temporaries, write_atomically
from proxlearn.jobs.job import Job
from proxlearn.jobs.launchers import LocalPool
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.jobs.runner import run_jobs
from proxlearn.run.folder_recognition import check_writable
from proxlearn.run.lock import FolderLock

DIGITS = 5
"""Number of significant digits of stored results; it is enough for every table and keeps the file small."""
PRELOAD = ("proxlearn.verify.plan", "proxlearn.core.fused.fused_step")


@dataclass(frozen=True)
class Piece:
    """A part of a measurement: one call of a function with named arguments."""

    part: str
    """Name of the part of the page that uses the result."""
    title: str
    function: Callable[..., Mapping[str, Any]]
    arguments: Mapping[str, Any]
    revision: int = 1

    @property
    def identity(self) -> dict[str, Any]:
        return {"part": self.part, "revision": self.revision, **self.arguments}

    def job(self, number: int) -> Job:
        return Job(f"{self.part}-{number:04d}", self.title, call, (self.function, dict(self.arguments)), self.identity)


def call(function: Callable[..., Mapping[str, Any]], arguments: dict[str, Any]) -> Mapping[str, Any]:
    return function(**arguments)


def compute(pieces: Sequence[Piece], results: Path, parallel: int, caption: str) -> int:
    """Compute the pieces that have no stored result, using one thread per piece, and return an exit code."""
    folder = results.parent
    check_writable(folder, "choose another --output")
    folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder):
        remove_temporaries(folder)
        jobs = [piece.job(number) for number, piece in enumerate(pieces)]
        launcher = LocalPool(parallel, threads=1)
        outcome = run_jobs(
            jobs, folder / ".proxlearn-jobs", launcher, cache=ResultCache(results), preload=PRELOAD, caption=caption
        )
        return outcome.exit_code


def stored(pieces: Sequence[Piece], results: Path) -> Iterator[tuple[Piece, dict[str, Any]]]:
    """Yield the pieces that have a stored result, in order, with their results."""
    cache = ResultCache(results)
    for piece in pieces:
        result = cache.get(piece.identity)
        if result is not None:
            yield piece, result


def write_page(path: Path, title: str, text: str) -> Path:
    """Write a page; raise InputError if a file of the same name has another title."""
    heading = f"# {title}\n"
    if path.exists() and not path.read_bytes().startswith(heading.encode()):
        raise InputError(f"{path} is not a page of `proxlearn verify`", "move it, or choose another --output")
    write_atomically(path, f"{heading}\n{text}".encode())
    return path


def rounded(value: Any) -> Any:
    """Return JSON values rounded to DIGITS significant digits; a number that is not finite becomes None."""
    if isinstance(value, Mapping):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
