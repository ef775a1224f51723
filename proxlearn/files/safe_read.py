"""Functions that read files from untrusted folders safely, and functions for paths that users type.

All files in run, sweep and comparison folders are opened with these functions. Only regular files are opened, links are
not followed, pipes do not block, and the number of bytes is limited per kind of file. If a file fails these checks,
`UnreadableFile` is raised, which the command line prints as one line.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from proxlearn.errors import InputError
from proxlearn.portability import NO_WAIT, PLAIN

if TYPE_CHECKING:
    import pandas as pd

MAX_JSON_BYTES = 64 * 2**20
MAX_YAML_BYTES = 2**18
"""Maximum size of a YAML file in bytes; a config has a few kilobytes, and parsing YAML takes seconds per megabyte."""
MAX_TABLE_BYTES = 2**31
MAX_DEPTH = 32
"""Maximum number of nesting levels in JSON or YAML; proxlearn's own files have five."""
PARSE_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    yaml.YAMLError,
)
"""Errors that parsers raise for damaged input; for example, PyYAML raises IndexError for an empty `!!int`."""
MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO)
"""Error numbers that indicate a problem of the machine rather than of the file."""
REMEDY = "copy the run folder again, or repeat the `train` command"


class UnreadableFile(InputError):
    """Raised if a file is damaged, forged, too large, or not a regular file."""

    def __init__(self, path: Path, why: str, remedy: str = REMEDY) -> None:
        super().__init__(f"{path} cannot be read: {why}", remedy)
        self.path, self.why = path, why


class AbsentFile(UnreadableFile):
    """Raised if a file does not exist."""


class PlainLoader(yaml.SafeLoader):
    """A YAML loader that rejects aliases, because a few aliases can stand for more values than fit in memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor; raise UnreadableFile for any other path."""
    try:
        # Without NO_WAIT, opening a pipe would block until a process writes to it.
        handle = os.open(path, os.O_RDONLY | PLAIN | NO_WAIT)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise AbsentFile(path, "the file does not exist") from error
    except ValueError as error:
        raise UnreadableFile(path, "its name is invalid") from error
    except OSError as error:
        # For a link, macOS and the BSDs report other error numbers than Linux.
        link = error.errno in (errno.ELOOP, errno.EMLINK) or path.is_symlink()
        if not link and error.errno in MACHINE_ERRORS:
            raise
        raise UnreadableFile(
            path, "it is a link, and links are not followed" if link else os_error_text(error)
        ) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableFile(path, "it is not a regular file")
    return handle


def read_bytes(path: Path, most: int) -> bytes:
    """Return the content of a regular file; raise UnreadableFile if it has more than ``most`` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(most + 1) if size <= most else b""
        except OSError as error:
            if error.errno in MACHINE_ERRORS:
                raise
            raise UnreadableFile(path, os_error_text(error)) from error
    if size > most or len(content) > most:
        raise UnreadableFile(path, f"it has {size} bytes, but at most {most} are expected")
    return content


def read_text(path: Path, most: int) -> str:
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, f"it is not UTF-8 text (byte 0x{error.object[error.start]:02x})") from error


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file; raise UnreadableFile if the file does not contain one."""
    text = read_text(path, most)
    try:
        return parse_json(text)
    except PARSE_ERRORS as error:
        raise UnreadableFile(path, parse_error_text(error, "valid JSON")) from error


def parse_json(text: str) -> dict[str, Any]:
    """Return the JSON object in a string; raise one of PARSE_ERRORS if the string does not contain one."""
    return _require_plain_mapping(json.loads(text))


def read_yaml(path: Path, most: int = MAX_YAML_BYTES) -> dict[str, Any]:
    """Return the YAML mapping in a file; raise UnreadableFile if the file does not contain one or has aliases."""
    text = read_text(path, most)
    try:
        return _require_plain_mapping(yaml.load(text, Loader=PlainLoader))
    except PARSE_ERRORS as error:
        raise UnreadableFile(path, parse_error_text(error, "valid YAML")) from error


def read_table(
    path: Path, most: int = MAX_TABLE_BYTES, convert: Callable[[str], str] = lambda content: content
) -> pd.DataFrame:
    """Return a CSV file with a header line as a data frame, without an incomplete last line.

    A last line without a line ending is left out, because a process may still be writing it. ``convert`` converts text
    in the format of an earlier version to the current format.
    """
    import pandas as pd

    content = read_bytes(path, most)
    complete = content[: content.rfind(b"\n") + 1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            table = pd.read_csv(io.StringIO(convert(complete.decode("utf-8"))), index_col=False)
    except (pd.errors.ParserWarning, *PARSE_ERRORS) as error:
        raise UnreadableFile(path, parse_error_text(error, "a valid table")) from error
    return table


def parse_error_text(error: BaseException, kind: str) -> str:
    """Return a short message for a parser error; ``kind`` is what the file should contain, such as valid JSON."""
    message = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
    return f"it is not {kind} ({message:.80})"


def os_error_text(error: OSError) -> str:
    """Return the system's description of an OSError."""
    return error.strerror or type(error).__name__


def _require_plain_mapping(value: Any) -> dict[str, Any]:
    """Return ``value`` if it is a mapping that consists of JSON values only; raise one of PARSE_ERRORS otherwise."""
    if not isinstance(value, dict):
        raise TypeError("it is not a mapping")
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                below += [*node, *node.values()]
                if not all(isinstance(key, str) for key in node):
                    raise TypeError("a key is not a string")
            elif isinstance(node, list):
                below += node
            elif isinstance(node, str):
                # JSON can contain half of a surrogate pair, which cannot be encoded.
                node.encode()
            elif node is not None and not isinstance(node, (bool, int, float)):
                raise TypeError(f"a value has the unsupported type {type(node).__name__}")
        if not below:
            return value
        level = below
    raise RecursionError("its values are nested too deeply")


ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def expand_home(text: str) -> str:
    """Replace a leading ``~`` or ``~user`` with the home folder; if the user is unknown, return ``text`` unchanged."""
    return os.path.expanduser(text)


def check_path(name: str, text: str) -> str:
    """Return ``text``; raise InputError if it is a web address or contains a null byte.

    ``Path`` would silently remove one of the slashes of a web address.
    """
    if ADDRESS.match(text):
        remedy = "choose a local folder" if name.startswith("hydra.") else "download it first, and give the local path"
        raise InputError(f"{name} must be a path on this machine, got the URL {text:.200}", remedy)
    if "\0" in text:
        raise InputError(f"{name} contains a null byte: {text!r:.100}", "correct the path")
    return text


def absolute_folder(path: str | Path) -> Path:
    """Return the absolute path of the folder that the operating system opens for ``path``.

    ``..`` after a symbolic link is the parent of the link's target, not of the link; ``os.path.abspath`` would return
    a different folder.
    """
    parts = (Path.cwd() / path).parts
    if ".." not in parts:
        return Path(*parts)
    end = len(parts) - parts[::-1].index("..")
    return Path(os.path.realpath(Path(*parts[:end])), *parts[end:])


def display_path(path: Path) -> str:
    """Return a path as the user would type it: relative if it is inside the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def user_path(name: str, text: str) -> Path:
    """Return the path that the user gave as ``text`` for the setting or option ``name``."""
    return Path(expand_home(check_path(name, text)))


@contextlib.contextmanager
def unreadable_as_input_error(name: str, path: Path, kinds: str) -> Iterator[None]:
    """Convert an OSError while ``path`` is read in the block into an InputError.

    ``name`` is the setting that contains the path, and ``kinds`` names the supported file types.
    """
    try:
        yield
    except FileNotFoundError as error:
        remedy = f"correct the path (relative paths start from the current folder, {Path.cwd()})"
        raise InputError(f"{name}: the file {path} does not exist", remedy) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", f"give a readable {kinds} file") from error
