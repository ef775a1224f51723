"""A cache of results in one file of JSON lines, so that hundreds of results can be committed as one file.

The first line names the format. Every other line is a record::

    {"key": "<sha256>", "identity": {...}, "result": {...}, "version": "0.2.0"}

The identity contains everything that determines the result: the resolved settings (never the name of a preset alone),
the checksum of the data, and the ``revision`` of the method, a number that is raised when the method's results change.
The key is a hash of the identity, and a record whose key does not match its identity is ignored, so that no result is
mistaken for another.

Only one process writes to a cache at a time: the command that holds the lock of the folder (run/lock.py). Jobs
return their results to that process.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxlearn import __version__
from proxlearn.errors import refuse_newer_format
from proxlearn.files.atomic import break_hard_links, write_all, write_atomically
from proxlearn.files.safe_read import PARSE_ERRORS, AbsentFile, UnreadableFile, parse_json, read_bytes
from proxlearn.terminal.streams import notice

FORMAT = "proxlearn-results-1"
MAX_BYTES = 2**28
HEADER = json.dumps({"format": FORMAT}).encode() + b"\n"


@dataclass(frozen=True)
class CachedResult:
    """One record of the cache: a result and its identity."""

    key: str
    identity: dict[str, Any]
    result: dict[str, Any]
    version: str
    """The version of proxlearn that computed the result; it is not part of the identity."""

    def line(self) -> bytes:
        """Return the record as a line of the cache file."""
        values = {"key": self.key, "identity": self.identity, "result": self.result, "version": self.version}
        return json.dumps(values).encode() + b"\n"


def canonical_json(identity: Mapping[str, Any]) -> str:
    """Return an identity as JSON that does not depend on the order of its keys or on the types of its sequences."""
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)


def cache_key(identity: Mapping[str, Any]) -> str:
    """Return the sha256 of the identity's canonical JSON."""
    return hashlib.sha256(canonical_json(identity).encode()).hexdigest()


class ResultCache:
    """A cache of results by identity; the file ``path`` need not exist before the first ``put``.

    >>> cache = ResultCache(folder / "results.jsonl")
    >>> identity = {"method": "adam", "revision": 1, "settings": {"rate": 0.1}, "seed": 0}
    >>> cache.get(identity)
    >>> cache.put(identity, {"accuracy": 0.9})
    >>> cache.get(identity)
    {'accuracy': 0.9}

    Raises UnreadableFile if the file is not a cache of results. Damaged lines are skipped with a notice, but remain in
    the file. An incomplete last line, which a killed process may leave, is removed by the next ``put``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[str, CachedResult] = {}
        self._lock = threading.Lock()
        self._read()

    def get(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result for this identity, or None if no result is stored."""
        record = self._records.get(cache_key(identity))
        return None if record is None else copy.deepcopy(record.result)

    def put(self, identity: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Store a result durably; it replaces an earlier result for the same identity."""
        key = cache_key(identity)
        stored_identity = json.loads(canonical_json(identity))
        # The result is converted to JSON and back, so that the values in memory equal those in the file.
        record = CachedResult(key, stored_identity, json.loads(json.dumps(result)), __version__)
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if key in self._records:
                self._rewrite_without(key, record.line())
                del self._records[key]
            else:
                self._append(record)
            self._records[key] = record

    def remove(self, identity: Mapping[str, Any]) -> None:
        """Delete the result for this identity, if there is one, so that it is computed again."""
        key = cache_key(identity)
        with self._lock:
            if key in self._records:
                self._rewrite_without(key)
                del self._records[key]

    def __iter__(self) -> Iterator[CachedResult]:
        """Yield the newest record of each identity, in the order of the file."""
        return iter(list(self._records.values()))

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, identity: Mapping[str, Any]) -> bool:
        return cache_key(identity) in self._records

    def _read(self) -> None:
        lines = self._lines()
        damaged = 0
        for number, line in enumerate(lines):
            try:
                record = parse_record(line)
            except PARSE_ERRORS:
                torn = number == len(lines) - 1 and not line.endswith(b"\n")
                damaged += not torn
                continue
            # A later record of the same identity replaces an earlier one.
            self._records.pop(record.key, None)
            self._records[record.key] = record
        if damaged:
            lines_skipped = "1 damaged line is" if damaged == 1 else f"{damaged} damaged lines are"
            notice(f"{self.path}: {lines_skipped} skipped; missing results are computed again when needed")

    def _lines(self) -> list[bytes]:
        """Return the lines of the file without the header; raise UnreadableFile if the file is not a result cache."""
        try:
            content = read_bytes(self.path, MAX_BYTES)
        except AbsentFile:
            return []
        header, *lines = content.splitlines(keepends=True) or [b""]
        if header != HEADER:
            file_format: object = None
            with contextlib.suppress(*PARSE_ERRORS):
                file_format = parse_json(header.decode()).get("format")
            refuse_newer_format(self.path, file_format, FORMAT)
            if file_format != FORMAT:
                raise UnreadableFile(self.path, "it is not a result cache", "move it elsewhere")
        return lines

    def _append(self, record: CachedResult) -> None:
        if not os.path.lexists(self.path):
            write_atomically(self.path, HEADER)
        break_hard_links(self.path)
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            start = self._repair(handle)
            try:
                write_all(handle, record.line())
                os.fsync(handle)
            except BaseException:
                # On a full disk, a part of the line may have been written; it is removed.
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, start)
                raise
        finally:
            os.close(handle)

    def _repair(self, handle: int) -> int:
        """Complete or remove a last line without a line ending, and return the size of the file in bytes."""
        size = os.fstat(handle).st_size
        if os.pread(handle, 1, size - 1) == b"\n":
            return size
        content = os.pread(handle, size, 0)
        start = content.rfind(b"\n") + 1
        try:
            parse_record(content[start:])
        except PARSE_ERRORS:
            os.ftruncate(handle, start)
            return start
        write_all(handle, b"\n")
        return size + 1

    def _rewrite_without(self, key: str, last_line: bytes = b"") -> None:
        """Rewrite the file without the records of ``key``, and append ``last_line``; damaged lines are not removed."""
        prefix = f'{{"key": "{key}"'.encode()
        kept = [line for line in self._lines() if not line.startswith(prefix) and line.endswith(b"\n")]
        write_atomically(self.path, b"".join((HEADER, *kept, last_line)))


def parse_record(line: bytes) -> CachedResult:
    """Parse a line of the file; raise one of PARSE_ERRORS if it is not a record with a matching key."""
    values = parse_json(line.decode())
    record = CachedResult(values["key"], values["identity"], values["result"], values["version"])
    if not (isinstance(record.identity, dict) and isinstance(record.result, dict) and isinstance(record.version, str)):
        raise TypeError("a field has the wrong type")
    if record.key != cache_key(record.identity):
        raise ValueError("the key does not match the identity")
    return record
