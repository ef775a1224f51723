"""The file format of checkpoints: safetensors with a JSON state and a sha256 of the whole file in the header.

While the checksum is computed, zeros are in its place, so that a change to any byte of the file is detected. This
module does not import torch, so a command can read the state of the newest checkpoint of a run without waiting seconds
for the import.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proxlearn.errors import refuse_newer_format
from proxlearn.files.safe_read import UnreadableFile, open_regular, os_error_text
from proxlearn.portability import physical_memory

FORMAT = "proxlearn-cloud-2"
MANIFEST_FORMAT = "proxlearn-cloud-3"
"""Format of a checkpoint whose cloud is divided among files, one per rank; the state contains their checksums."""
SHARD_FORMAT = "proxlearn-shard-1"
FILE_NAME = re.compile(r"cloud-(\d{9,18})\.safetensors")
SHARD_NAME = re.compile(r"cloud-(\d{9,18})-[0-9a-f]{16}\.shard")
BLANK_CHECKSUM = b"0" * 64
CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')
MAX_HEADER_BYTES = 2**20
"""Maximum length of a header; the header of five tensors and a state takes about two kilobytes."""
PARSE_ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors that can occur while a file with unknown content is read and parsed."""


class InvalidCheckpoint(Exception):
    """Raised if a file is damaged or is not a checkpoint."""


@dataclass(frozen=True)
class CheckpointFile:
    """The content of a checkpoint file with a verified checksum."""

    blob: bytes
    sha256: str
    state: dict[str, Any]
    """The values of the checkpoint that are not tensors."""
    shards: tuple[bytes, ...] = ()
    """The content of each file with a part of the cloud, in the order of the rows."""


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"cloud-{step:09d}.safetensors"


def shard_path(folder: Path, step: int, sha256: str) -> Path:
    """Return the path of a part of a cloud.

    The name contains the checksum, so that parts with different content have different paths.
    """
    return folder / f"cloud-{step:09d}-{sha256[:16]}.shard"


def list_shards(folder: Path) -> list[tuple[int, Path]]:
    """Return the step and the path of every part of a cloud in a folder, in no particular order."""
    matches = ((SHARD_NAME.fullmatch(path.name), path) for path in folder.glob("cloud-*.shard"))
    return [(int(match[1]), path) for match, path in matches if match]


def shard_names(state: dict[str, Any]) -> list[str]:
    """Return the checksums of the cloud parts that a state lists, or an empty list if the cloud is in a single file."""
    names = [str(sha256) for sha256 in state.get("shards", ())]
    # The checksums become parts of paths, so other strings are rejected.
    if not all(re.fullmatch("[0-9a-f]{64}", name) for name in names):
        raise InvalidCheckpoint("its list of parts contains a value that is not a checksum")
    return names


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return the steps and paths of the checkpoints in a folder, newest first."""
    if folder.is_symlink():
        raise UnreadableFile(folder, "it is a link, and links are not followed")
    matches = ((FILE_NAME.fullmatch(path.name), path) for path in folder.glob("cloud-*.safetensors"))
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def encode_checkpoint(blob: bytes, state: dict[str, Any], file_format: str = FORMAT) -> bytes:
    """Return the safetensors file ``blob`` with ``state`` and a checksum in its header; equal inputs give equal bytes.

    The header is written here because the library writes metadata in random order.
    """
    size = int.from_bytes(blob[:8], "little")
    metadata = {"format": file_format, "state": json.dumps(state, sort_keys=True), "sha256": BLANK_CHECKSUM.decode()}
    header = json.dumps({"__metadata__": metadata, **json.loads(blob[8 : 8 + size])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    blank = len(header).to_bytes(8, "little") + header + blob[8 + size :]
    start, end = _checksum_span(blank)
    return blank[:start] + hashlib.sha256(blank).hexdigest().encode() + blank[end:]


def checksum_of(content: bytes) -> str:
    """Return the checksum in the header of an encoded file."""
    start, end = _checksum_span(content)
    return content[start:end].decode()


def read_checkpoint_file(path: Path, named: bool = True) -> CheckpointFile:
    """Read a checkpoint file and, if it lists parts of the cloud, the files of these parts.

    Raise InvalidCheckpoint if a checksum does not match, or if ``named`` is true and the file name does not match the
    step.
    """
    file = _read_file(path, (FORMAT, MANIFEST_FORMAT))
    try:
        step = file.state["step"] if named or "shards" in file.state else 0
        if named and checkpoint_path(path.parent, step) != path:
            raise InvalidCheckpoint("its file name does not match its step")
        names = shard_names(file.state)
        parts = [shard_path(path.parent, step, sha256) for sha256 in names]
        return replace(file, shards=tuple(_read_shard(part, name) for part, name in zip(parts, names, strict=True)))
    except PARSE_ERRORS as error:
        raise InvalidCheckpoint(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error


def _read_shard(path: Path, sha256: str) -> bytes:
    """Return the content of a file with a cloud part; raise InvalidCheckpoint if the file is damaged or missing."""
    try:
        file = _read_file(path, (SHARD_FORMAT,))
    except InvalidCheckpoint as error:
        raise InvalidCheckpoint(f"its part {path.name} is not valid: {error}") from error
    if file.sha256 != sha256:
        raise InvalidCheckpoint(f"its part {path.name} has a different checksum")
    return file.blob


def _read_file(path: Path, formats: tuple[str, ...]) -> CheckpointFile:
    """Read a file in one of ``formats``; raise InvalidCheckpoint if its checksum does not match."""
    try:
        blob = _read_whole_file(path)
        metadata = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]
        # The format is checked before the checksum, which a newer format may compute differently.
        refuse_newer_format(path, metadata["format"], formats[-1])
        start, end = _checksum_span(blob)
        if _checksum(blob, start, end) != blob[start:end]:
            raise InvalidCheckpoint("its checksum does not match")
        if metadata["format"] not in formats:
            raise InvalidCheckpoint(f"its format is {metadata['format']!r:.60} instead of {formats[0]!r}")
        return CheckpointFile(blob, blob[start:end].decode(), json.loads(metadata["state"]))
    except PARSE_ERRORS as error:
        raise InvalidCheckpoint(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error


def unused_shards(folder: Path, step: int) -> list[Path]:
    """Return the files of cloud parts up to ``step`` that no checkpoint in the folder lists.

    They belong to checkpoints that were deleted, or that were not completed because a rank was killed.
    """
    used = set()
    shards = list_shards(folder)
    for number, path in list_checkpoints(folder) if shards else ():
        try:
            state = _read_file(path, (FORMAT, MANIFEST_FORMAT)).state
            used |= {shard_path(folder, number, sha256) for sha256 in shard_names(state)}
        except (InvalidCheckpoint, *PARSE_ERRORS):
            # A damaged checkpoint may be repaired, so its parts are kept.
            used |= {shard for shard_step, shard in shards if shard_step == number}
    return [path for number, path in shards if number <= step and path not in used]


def valid_checkpoints(folder: Path) -> Iterator[CheckpointFile]:
    """Yield the checkpoints with matching checksums in a folder, newest first."""
    for _, path in list_checkpoints(folder):
        try:
            yield read_checkpoint_file(path)
        except InvalidCheckpoint:
            continue


def _read_whole_file(path: Path) -> bytes:
    """Return the content of a checkpoint file.

    Raise InvalidCheckpoint if the size of the file contradicts its header, or if the file does not fit in memory.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if length > min(MAX_HEADER_BYTES, size):
                raise InvalidCheckpoint("its header is too long")
            tensors = json.loads(file.read(length))
            ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
            if 8 + length + max(ends) != size:
                raise InvalidCheckpoint(f"it has {size} bytes, but its header describes {8 + length + max(ends)}")
            # The bytes and the tensors created from them are in memory at the same time.
            if 2 * size > physical_memory():
                raise InvalidCheckpoint(f"its {size} bytes do not fit in the memory of this machine")
            file.seek(0)
            return file.read(size)
    except UnreadableFile as error:
        raise InvalidCheckpoint(error.why) from error
    except OSError as error:
        raise InvalidCheckpoint(os_error_text(error)) from error


def _checksum(blob: bytes, start: int, end: int) -> bytes:
    """Return the sha256 of a file with zeros in place of its checksum, computed without a second copy of the file."""
    view, sha256 = memoryview(blob), hashlib.sha256()
    for part in (view[:start], BLANK_CHECKSUM, view[end:]):
        sha256.update(part)
    return sha256.hexdigest().encode()


def _checksum_span(blob: bytes) -> tuple[int, int]:
    header_end = 8 + int.from_bytes(blob[:8], "little")
    match = CHECKSUM.search(blob, 8, min(header_end, len(blob)))
    if match is None:
        raise InvalidCheckpoint("its header has no checksum")
    return match.span(1)
