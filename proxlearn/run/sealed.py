"""Checkpoint files as bytes: safetensors with JSON beside the tensors and a sha256 over the whole file.

The checksum stands in the header; it is computed with its own place filled with zeros, so that no byte can change
unnoticed. Free of torch: a command can look at a run's newest cloud before it pays for that import.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxlearn.errors import refuse_newer_format

FORMAT = "proxlearn-cloud-2"
NAME = re.compile(r"cloud-(\d{9,18})\.safetensors")
BLANK = b"0" * 64
CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a file that anybody may have written can raise."""


class InvalidCheckpoint(Exception):
    """The file is damaged, or is something else."""


@dataclass(frozen=True)
class Sealed:
    """A checkpoint file whose checksum holds."""

    blob: bytes
    sha256: str
    state: dict[str, Any]
    """What is not a tensor."""


def path_of(folder: Path, step: int) -> Path:
    return folder / f"cloud-{step:09d}.safetensors"


def stored(folder: Path) -> list[tuple[int, Path]]:
    """Steps and paths of the checkpoints in a folder, newest first."""
    named = ((NAME.fullmatch(path.name), path) for path in folder.glob("cloud-*.safetensors"))
    return sorted(((int(name[1]), path) for name, path in named if name), reverse=True)


def seal(blob: bytes, state: dict[str, Any]) -> bytes:
    """Put ``state`` and the checksum into the header; the same content gives the same bytes.

    The library's own metadata comes in a random order, so the header is written here.
    """
    size = int.from_bytes(blob[:8], "little")
    about = {"format": FORMAT, "state": json.dumps(state, sort_keys=True), "sha256": BLANK.decode()}
    header = json.dumps({"__metadata__": about, **json.loads(blob[8 : 8 + size])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    blank = len(header).to_bytes(8, "little") + header + blob[8 + size :]
    start, end = _checksum_place(blank)
    return blank[:start] + hashlib.sha256(blank).hexdigest().encode() + blank[end:]


def unseal(path: Path, named: bool = True) -> Sealed:
    """Read a file that vouches for itself, and is ``named`` after its step, or raise InvalidCheckpoint."""
    try:
        blob = path.read_bytes()
        about = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]
        # Before the checksum, which a newer format may compute in another way.
        refuse_newer_format(path, about["format"], FORMAT)
        start, end = _checksum_place(blob)
        if hashlib.sha256(blob[:start] + BLANK + blob[end:]).hexdigest().encode() != blob[start:end]:
            raise InvalidCheckpoint("the checksum does not match")
        if about["format"] != FORMAT:
            raise InvalidCheckpoint(f"format {about['format']!r:.60} instead of {FORMAT!r}")
        state = json.loads(about["state"])
        if named and path_of(path.parent, state["step"]) != path:
            raise InvalidCheckpoint("its name does not fit its step")
        return Sealed(blob, blob[start:end].decode(), state)
    except UNREADABLE as error:
        raise InvalidCheckpoint(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error


def valid(folder: Path) -> Iterator[Sealed]:
    """The checkpoints of a folder whose checksums hold, newest first."""
    for _, path in stored(folder):
        try:
            yield unseal(path)
        except InvalidCheckpoint:
            continue


def _checksum_place(blob: bytes) -> tuple[int, int]:
    header_end = 8 + int.from_bytes(blob[:8], "little")
    found = CHECKSUM.search(blob, 8, min(header_end, len(blob)))
    if found is None:
        raise InvalidCheckpoint("no checksum in its header")
    return found.span(1)
